"""`trainyard webhooks` on a real database of each kind."""

from typing import Any

import pytest
from click.testing import Result

from app.database.engine import Database
from app.models import AuditEntry
from tests.builders.factories import make_job, make_webhook
from tests.systems import commands

URL = "https://receiver.example/hook"


def run(*arguments: str) -> Result:
    return commands.run_local("webhooks", *arguments)


def run_json(*arguments: str) -> Any:
    return commands.run_local_json("webhooks", *arguments)


@pytest.mark.long
def test_webhook_is_made_shown_switched_and_deleted(db: Database) -> None:
    made = run_json("create", URL, "--event", "FAILED", "--event", "checkpoint.saved", "--description", "for us")

    assert made["secret"].startswith("whsec_")
    assert made["event_types"] == ["FAILED", "checkpoint.saved"]
    assert run_json("show", made["webhook_id"])["created_by"] == "cli"
    assert run_json("disable", made["webhook_id"])["is_active"] is False
    assert "off" in run("list").stdout
    assert run_json("enable", made["webhook_id"])["is_active"] is True
    assert [hook["webhook_id"] for hook in run_json("list", "--project", "default")["webhooks"]] == [made["webhook_id"]]
    assert made["secret"] not in run("list").stdout + run("show", made["webhook_id"]).stdout
    assert run_json("delete", made["webhook_id"]) == {"webhook_id": made["webhook_id"], "deleted": True}
    assert run_json("list")["webhooks"] == []
    with db.read() as session:
        actions = {entry.action for entry in session.query(AuditEntry).filter_by(target=made["webhook_id"])}
    assert actions == {"webhook.create", "webhook.patch", "webhook.delete"}


@pytest.mark.usefixtures("db")
def test_secret_is_printed_once_for_people_too() -> None:
    answer = run("create", URL)

    assert "whsec_" in answer.stdout
    assert "not shown again" in answer.stderr


@pytest.mark.long
def test_test_event_and_redelivery_are_listed(db: Database) -> None:
    made = run_json("create", URL)

    first = run_json("test", made["webhook_id"])
    second = run_json("redeliver", made["webhook_id"], first["delivery_id"])

    listed = run_json("deliveries", made["webhook_id"])
    assert [row["delivery_id"] for row in listed["deliveries"]] == [second["delivery_id"], first["delivery_id"]]
    assert run_json("deliveries", made["webhook_id"], "--state", "given_up")["deliveries"] == []
    assert run_json("deliveries", made["webhook_id"], first["delivery_id"])["payload"]["event"]["actor"] == "cli"
    assert "webhook.test" in run("deliveries", made["webhook_id"]).stdout
    assert run("test", made["webhook_id"]).stdout.startswith("dlv-")
    assert run("redeliver", made["webhook_id"], first["delivery_id"]).stdout.startswith("dlv-")
    assert "webhook.test" in run("deliveries", made["webhook_id"], first["delivery_id"]).stdout


@pytest.mark.usefixtures("db")
def test_invalid_requests_are_reported_in_one_line() -> None:
    assert run("show", "whk-1").stderr == "Error: NOT_FOUND: no webhook whk-1\n"
    assert "TRAINYARD_WEBHOOK_ALLOW" in run("create", "http://127.0.0.1/").stderr
    assert "TRAINYARD_SMTP_HOST" in run("create", "--recipient", "ana@example.org").stderr
    assert "leave the url out" in run("create", URL, "--recipient", "ana@example.org").stderr
    assert "--recipient" in run("create").stderr
    assert run("create", URL, "--event", "job.finished").exit_code == 2
    assert run("create", URL, "--project", "unknown").stderr == "Error: NOT_FOUND: no project unknown\n"


@pytest.mark.both_databases
def test_deleted_project_takes_its_webhooks_along(db: Database) -> None:
    with db.write() as session:
        hook = make_webhook(session, project="short-lived")
        make_job(session)
        project = hook.project

    with db.write() as session:
        session.connection().exec_driver_sql(f"DELETE FROM project WHERE name = '{project}'")

    assert run_json("list")["webhooks"] == []
