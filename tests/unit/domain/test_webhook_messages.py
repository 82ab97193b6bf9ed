"""Events as messages of Slack and Teams and as emails: what they say, and that names cannot format them."""

import json
from typing import Any

import pytest

from app.domain.webhook_messages import LONGEST_SUBJECT, LONGEST_TEXT, WEBHOOK_FORMATS, email_of, in_format

NAME = "<!channel> *a* [x](https://evil.example) &amp;"


def payload(
    *, name: str = "support-v3", message: str = "", to_status: str | None = "FAILED", **more: Any
) -> dict[str, Any]:
    event = {"type": "job.status", "from_status": "TRAINING", "to_status": to_status, "reason": "", "message": message}
    job = {"job_id": "job-1", "project": "default", "name": name, "status": "FAILED", "attempt": 2}
    return {"event": event, "job": job, **more}


def test_plain_format_is_the_event_itself():
    assert in_format("json", payload()) == payload()


def test_slack_gets_a_text_that_formats_and_mentions_nothing():
    message = in_format("slack", payload(name=NAME, message="CUDA out of memory: a < b"))

    assert message == {
        "text": "❌ &lt;!channel&gt; *a* [x](https://evil.example) &amp;amp; is FAILED\n"
        "job job-1 in project default, attempt 2\nCUDA out of memory: a &lt; b",
        "mrkdwn": False,
    }


def test_teams_gets_a_card_of_plain_text_runs():
    message = in_format("teams", payload(name=NAME, message="out of memory"))

    (attachment,) = message["attachments"]
    blocks = attachment["content"]["body"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    assert {block["type"] for block in blocks} == {"RichTextBlock"}
    assert {run["type"] for block in blocks for run in block["inlines"]} == {"TextRun"}
    assert [run["text"] for block in blocks for run in block["inlines"]] == [
        f"❌ {NAME} is FAILED",
        "job job-1 in project default, attempt 2",
        "out of memory",
    ]


@pytest.mark.parametrize("name", WEBHOOK_FORMATS)
def test_every_event_has_a_message(name: str):
    test_event = {"event": {"type": "webhook.test", "to_status": None, "message": "a test event"}, "job": None}
    subject = {"project": "default", "name": "sweep-a", "status": "RUNNING"}
    of_sweep = {
        "event": {"type": "sweep.best", "message": "", "reason": "lower"},
        "sweep": {**subject, "sweep_id": "s"},
    }
    of_service = {"event": {"type": "service.status"}, "service": {**subject, "service_id": "v"}}

    of_batch = {"event": {"type": "batch.failed"}, "batch": {**subject, "batch_id": "b"}}

    for event in (payload(to_status=None), test_event, of_sweep, of_service, of_batch):
        assert json.dumps(in_format(name, event))
        assert email_of(event, webhook_id="whk-1", dashboard="")[0].startswith("[Trainyard] ")


def test_long_messages_are_cut():
    message = in_format("slack", payload(message="x" * 9000))

    assert len(message["text"].splitlines()[-1]) == LONGEST_TEXT


def test_an_email_says_what_happened_and_where_to_look():
    subject, text = email_of(
        payload(message="out of memory"), webhook_id="whk-1", dashboard="https://trainyard.example.org/"
    )

    assert subject == "[Trainyard] ❌ support-v3 is FAILED"
    assert text == (
        "❌ support-v3 is FAILED\n\njob job-1 in project default, attempt 2\nout of memory\n\n"
        "https://trainyard.example.org/ui/jobs/job-1\n\nEvent job.status\n"
        "Sent by the webhook whk-1 of Trainyard; who manages its project can change or delete it.\n"
        "https://trainyard.example.org/ui/admin/webhooks/whk-1\n"
    )


def test_text_of_jobs_is_one_line_in_a_subject_and_has_no_controls_in_an_email():
    hostile = "a\r\nBcc: x@evil.example\x00\x1b[31m\u202eb\ud800\u2028c"
    subject, text = email_of(payload(name=hostile * 9, message=hostile), webhook_id="whk-1", dashboard="")

    assert len(subject) == LONGEST_SUBJECT
    assert subject.isprintable()
    assert all(each == "\n" or each.isprintable() for each in text)
    assert "http" not in text
