"""Events as messages of Slack and Teams: what they say, and that names cannot format them."""

import json
from typing import Any

import pytest

from app.domain.webhook_messages import LONGEST_TEXT, WEBHOOK_FORMATS, in_format

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

    for event in (payload(to_status=None), test_event, of_sweep, of_service):
        assert json.dumps(in_format(name, event))


def test_long_messages_are_cut():
    message = in_format("slack", payload(message="x" * 9000))

    assert len(message["text"].splitlines()[-1]) == LONGEST_TEXT
