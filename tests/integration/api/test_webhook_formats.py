"""The forms in which receivers of webhooks read events, and whom emails may be sent to."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.database.engine import Database
from app.models import AuditEntry, Webhook
from tests.systems.apps import Api
from tests.systems.engines import engine_on

URL = "https://receiver.example/hook"
ANA, BO = "ana@example.org", "bo@example.org"


@pytest.fixture
def mail_api(sqlite_url: str, tmp_path: Path) -> Iterator[Api]:
    """An API whose operator has a mail server for two domains."""
    bound = Database().bind(engine_on(sqlite_url))
    folder = tmp_path / "mail"
    folder.mkdir()
    made = Api(
        bound,
        folder,
        TRAINYARD_SMTP_HOST="mail.internal",
        TRAINYARD_SMTP_SENDER="trainyard@example.org",
        TRAINYARD_SMTP_DOMAINS="example.org, example.com",
    )
    yield made
    made.close()
    bound.close()


def make_email(api: Api, **fields: Any) -> dict[str, Any]:
    body = {"format": "email", "recipients": [ANA, BO], **fields}
    made: dict[str, Any] = api.data(api.post("/v1/webhooks", body), 201)
    return made


def test_format_is_shown_and_can_be_changed(sqlite_api: Api) -> None:
    made = sqlite_api.data(sqlite_api.post("/v1/webhooks", {"url": URL, "format": "slack"}), 201)
    other = sqlite_api.data(sqlite_api.post("/v1/webhooks", {"url": URL}), 201)

    changed = sqlite_api.data(sqlite_api.call("PATCH", f"/v1/webhooks/{made['webhook_id']}", json={"format": "teams"}))

    assert (made["format"], changed["format"], other["format"]) == ("slack", "teams", "json")


@pytest.mark.parametrize("name", ["xml", ""])
def test_other_format_is_refused(sqlite_api: Api, name: str) -> None:
    problem = sqlite_api.problem(sqlite_api.post("/v1/webhooks", {"url": URL, "format": name}), 422)

    assert problem["details"][0]["field"] == "format"


def test_emails_are_refused_without_a_mail_server(sqlite_api: Api) -> None:
    body = {"format": "email", "recipients": [ANA]}

    problem = sqlite_api.problem(sqlite_api.post("/v1/webhooks", body), 400)

    assert problem["details"][0]["field"] == "format"
    assert "TRAINYARD_SMTP_HOST" in problem["message"]


def test_an_email_webhook_has_recipients_and_no_secret(mail_api: Api) -> None:
    made = make_email(mail_api, event_types=["FAILED"])

    assert (made["url"], made["secret"], made["recipients"]) == ("", "", [ANA, BO])
    shown = mail_api.get(f"/v1/webhooks/{made['webhook_id']}")
    assert (shown["format"], shown["recipients"]) == ("email", [ANA, BO])
    changed = mail_api.data(
        mail_api.call("PATCH", f"/v1/webhooks/{made['webhook_id']}", json={"recipients": ["cy@example.com"]})
    )
    assert (changed["recipients"], changed["event_types"]) == (["cy@example.com"], ["FAILED"])
    with mail_api.db.read() as session:
        row = session.get_one(Webhook, made["webhook_id"])
        entries = session.query(AuditEntry).filter_by(target=row.id).order_by(AuditEntry.id)
        noted = {entry.action: entry.data for entry in entries}
    assert row.sealed_secret == ""
    assert noted["webhook.create"] == {"recipients": [ANA, BO]}
    moved = {"before": [ANA, BO], "after": ["cy@example.com"]}
    assert noted["webhook.patch"] == {"changed": ["recipients"], "recipients": moved}


@pytest.mark.parametrize(
    ("fields", "code", "field"),
    [
        ({"recipients": None}, 422, "recipients"),
        ({"recipients": []}, 422, "recipients"),
        ({"recipients": [f"a{n}@example.org" for n in range(11)]}, 422, "recipients"),
        ({"recipients": ANA}, 422, "recipients"),
        ({"recipients": [None]}, 422, "recipients.0"),
        ({"recipients": ["Ana <ana@example.org>"]}, 400, "recipients.0"),
        ({"recipients": [ANA, "bo@example.org\r\nBcc: x@evil.example"]}, 400, "recipients.1"),
        ({"recipients": [ANA, "x@evil.example"]}, 400, "recipients.1"),
        ({"recipients": [ANA, "Ana@example.org"]}, 400, "recipients"),
        ({"url": URL}, 400, "url"),
        ({"secret": "a-secret-of-my-own"}, 400, "secret"),
        ({"format": "slack", "url": URL}, 400, "recipients"),
        ({"format": "json"}, 422, "url"),
    ],
)
def test_bad_email_webhook_names_the_field(mail_api: Api, fields: dict[str, Any], code: int, field: str) -> None:
    body = {"format": "email", "recipients": [ANA], **fields}

    problem = mail_api.problem(mail_api.post("/v1/webhooks", body), code)

    assert [detail["field"] for detail in problem["details"]] == [field]
    assert mail_api.get("/v1/webhooks")["webhooks"] == []


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"format": "json"}, "format"),
        ({"url": URL}, "url"),
        ({"secret": "a-secret-of-my-own"}, "secret"),
        ({"recipients": ["x@evil.example"]}, "recipients.0"),
    ],
)
def test_emails_do_not_become_posts(mail_api: Api, change: dict[str, Any], field: str) -> None:
    made = make_email(mail_api)

    problem = mail_api.problem(mail_api.call("PATCH", f"/v1/webhooks/{made['webhook_id']}", json=change), 400)

    assert problem["details"][0]["field"] == field
    posts = mail_api.data(mail_api.post("/v1/webhooks", {"url": URL}), 201)["webhook_id"]
    for other in ({"format": "email"}, {"recipients": [ANA]}, {"format": "email", "recipients": [ANA]}):
        mail_api.problem(mail_api.call("PATCH", f"/v1/webhooks/{posts}", json=other), 400)


def test_an_email_webhook_is_switched_off_after_the_mail_server_is_gone(mail_api: Api, sqlite_api: Api) -> None:
    made = make_email(mail_api)

    changed = sqlite_api.data(sqlite_api.call("PATCH", f"/v1/webhooks/{made['webhook_id']}", json={"is_active": False}))

    assert changed["is_active"] is False
