"""Deliveries to real receivers that are good, slow, failing, redirecting and hanging, by one coordinator and by two."""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from app.database.engine import Database
from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.states import JobState
from app.domain.webhooks import signature
from app.models import Webhook, WebhookDelivery
from app.services.lifecycle import transitions
from app.services.requests.wakeups import Dispatcher
from app.services.webhooks import subscriptions
from config.settings import load_settings
from tasks.background.webhook_delivery import WebhookDeliverer
from tasks.celery_app import Runtime
from tests.builders.factories import make_job, make_webhook
from tests.doubles.mail_server import PASSWORD, USER, mail_server
from tests.fetching.web_server import Answer, Handler, WebServer, redirect, status
from tests.systems.apps import SECRET_KEY
from tests.systems.running_up import wait_until

pytestmark = pytest.mark.both_databases

ROOT = Path(__file__).parents[4]
SECRET = "a-secret-of-the-receiver"


@pytest.fixture
def receiver() -> Iterator[WebServer]:
    with WebServer() as server:
        yield server


@contextmanager
def delivering(db: Database, **variables: str) -> Iterator[WebhookDeliverer]:
    """A coordinator's deliverer at work."""
    environment = {
        "TRAINYARD_SECURITY_SECRET_KEY": SECRET_KEY,
        "TRAINYARD_SCHEDULER_POLL_SECONDS": "0.02",
        "TRAINYARD_WEBHOOK_ALLOW": "127.0.0.1",
        **variables,
    }
    settings = load_settings(environment)
    deliverer = WebhookDeliverer(Runtime(settings, db, Dispatcher(settings)))
    deliverer.start()
    try:
        yield deliverer
    finally:
        deliverer.stop()
        deliverer.join()


def hook(db: Database, url: str, **columns: Any) -> str:
    with db.write() as session:
        return make_webhook(session, url=url, secret=SECRET, key=SECRET_KEY, **columns).id


def warn(db: Database, count: int = 1, *, project: str = "default") -> list[str]:
    """Events of a new job; their ids in order."""
    with db.write() as session:
        job = make_job(session, project=project)
        return [
            transitions.record_event(session, job.id, EventType.WARNING, message=f"warning {number}").id
            for number in range(count)
        ]


def deliveries(db: Database, hook_id: str) -> list[WebhookDelivery]:
    with db.read() as session:
        rows = session.query(WebhookDelivery).filter_by(webhook_id=hook_id)
        return list(rows.order_by(WebhookDelivery.id))


def states(db: Database, *hooks: str) -> set[str]:
    return {row.state for each in hooks for row in deliveries(db, each)}


def received_ids(receiver: WebServer, path: str) -> list[str]:
    """The ids of the deliveries that arrived there."""
    return [seen.headers["x-trainyard-delivery"] for seen in receiver.asked(path)]


def hang(handler: Handler) -> None:
    handler.server.owner.closing.wait(30)


# ---- one receiver


def test_transition_arrives_and_the_documented_check_finds_it_genuine(database: Database, receiver: WebServer) -> None:
    receiver.answers["/hook"] = status(200)
    hook_id = hook(database, receiver.url("/hook"), event_types=["PAUSED"])
    with database.write() as session:
        job = make_job(session)
        transitions.transition(session, job, JobState.PAUSED, actor="key-1", message="lunch")
        transitions.transition(session, job, JobState.QUEUED, actor="key-1")

    with delivering(database):
        wait_until(lambda: states(database, hook_id) == {"delivered"})

    (row,), (seen,) = deliveries(database, hook_id), receiver.asked("/hook")
    assert seen.headers["x-trainyard-event"] == "job.status"
    assert seen.headers["x-trainyard-delivery"] == row.id
    assert b'"message":"lunch"' in seen.body
    is_genuine = documented_check()
    header = seen.headers["x-trainyard-signature"]
    assert is_genuine(SECRET, header, seen.body)
    assert not is_genuine(SECRET, header, seen.body + b" ")
    assert not is_genuine("another-secret-of-it", header, seen.body)


def test_a_channel_of_slack_gets_a_message_in_its_form(database: Database, receiver: WebServer) -> None:
    receiver.answers["/slack"] = status(200)
    hook_id = hook(database, receiver.url("/slack"), event_types=["FAILED"], format="slack")
    with database.write() as session:
        job = make_job(session)
        transitions.transition(session, job, JobState.FAILED, actor="node-1", message="out of <memory>")
        name, job_id = job.name, job.id

    with delivering(database):
        wait_until(lambda: states(database, hook_id) == {"delivered"})

    (seen,) = receiver.asked("/slack")
    place = f"job {job_id} in project default"
    assert json.loads(seen.body) == {"text": f"❌ {name} is FAILED\n{place}\nout of &lt;memory&gt;", "mrkdwn": False}
    assert documented_check()(SECRET, seen.headers["x-trainyard-signature"], seen.body)


def test_an_email_is_sent_over_the_server_of_the_operator(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "password").write_text(PASSWORD)
    recipients: dict[str, Any] = {"format": "email", "url": "", "recipients": ["ana@example.org"]}
    with database.write() as session:
        hook_id = make_webhook(session, event_types=["FAILED"], **recipients).id
        job = make_job(session, name="a job")
        transitions.transition(
            session, job, JobState.FAILED, actor="node-1", message="out of memory\r\nBcc: x@y.example"
        )
    with mail_server(tmp_path, sign_in=True) as server:
        monkeypatch.setenv("SSL_CERT_FILE", str(server.certificate))
        server.answers_to_texts = ["451 later"]
        settings = {
            "TRAINYARD_SMTP_HOST": "127.0.0.1",
            "TRAINYARD_SMTP_PORT": str(server.port),
            "TRAINYARD_SMTP_USER": USER,
            "TRAINYARD_SMTP_PASSWORD_FILE": str(tmp_path / "password"),
            "TRAINYARD_SMTP_SENDER": "trainyard@example.org",
            "TRAINYARD_WEB_URL": "https://trainyard.example.org",
        }
        with delivering(database, **settings):
            wait_until(lambda: deliveries(database, hook_id)[0].tries == 1)
            assert deliveries(database, hook_id)[0].status_code == 451
            with database.write() as session:
                subscriptions.reset_backoff(session.get_one(Webhook, hook_id))
            wait_until(lambda: states(database, hook_id) == {"delivered"})

    (row,), (message,) = deliveries(database, hook_id), server.messages
    assert (row.tries, row.status_code, row.problem) == (2, 250, "")
    assert (message["Subject"], message["X-Trainyard-Delivery"]) == ("[Trainyard] ❌ a job is FAILED", row.id)
    assert message["Bcc"] is None
    assert f"https://trainyard.example.org/ui/jobs/{job.id}\r\n" in message.get_content()


def test_machine_without_room_for_a_thread_delivers_a_little_later(
    database: Database, receiver: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver.answers["/hook"] = status(200)
    hook_id = hook(database, receiver.url("/hook"))
    warn(database)
    start = threading.Thread.start
    refused: list[threading.Thread] = []

    def full_once(thread: threading.Thread) -> None:
        if thread.name == f"webhook-{hook_id}" and not refused:
            refused.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", full_once)
    with delivering(database):
        wait_until(lambda: states(database, hook_id) == {"delivered"})

    assert refused


def documented_check() -> Callable[..., bool]:
    page = (ROOT / "docs/how-to/webhooks.md").read_text()
    names: dict[str, Any] = {}
    exec(page.partition("```python\n")[2].partition("```")[0], names)
    check: Callable[..., bool] = names["is_genuine"]
    return check


def test_documented_check_refuses_what_is_old_or_no_signature() -> None:
    is_genuine, now = documented_check(), int(time.time())

    assert is_genuine("s" * 16, signature("s" * 16, now - 200, b"{}"), b"{}")
    assert not is_genuine("s" * 16, signature("s" * 16, now - 400, b"{}"), b"{}")
    assert not is_genuine("s" * 16, signature("s" * 16, now + 400, b"{}"), b"{}")
    odd = ("", "t=1", "v1=abc", f"t={now}", f"t={now},v1=", "nonsense", f"t={now},v1=é", "t=,v1=x")
    for header in (*odd, f"t={'9' * 400},v1=x", f"t={'9' * 5000},v1=x"):
        assert not is_genuine("s" * 16, header, b"{}")


def test_events_arrive_in_their_order_and_once(database: Database, receiver: WebServer) -> None:
    receiver.answers["/hook"] = status(204)
    hook_id = hook(database, receiver.url("/hook"))
    event_ids = warn(database, 30)

    with delivering(database):
        wait_until(lambda: states(database, hook_id) == {"delivered"})

    rows = deliveries(database, hook_id)
    assert [row.event_id for row in rows] == event_ids
    assert received_ids(receiver, "/hook") == [row.id for row in rows]


@pytest.mark.parametrize(
    ("answer", "code", "problem"),
    [
        (status(500), 500, "it answers 500"),
        (redirect("http://127.0.0.1:1/"), 302, "it answers 302; redirects are not followed"),
        (hang, None, "no answer within 0.3 seconds"),
    ],
    ids=["failing", "redirecting", "hanging"],
)
def test_failure_is_written_down_and_tried_again(
    database: Database, receiver: WebServer, answer: Answer, code: int | None, problem: str
) -> None:
    receiver.answers["/hook"] = answer
    hook_id = hook(database, receiver.url("/hook"))
    warn(database)

    with delivering(database, TRAINYARD_WEBHOOK_TIMEOUT_SECONDS="0.3"):
        wait_until(lambda: deliveries(database, hook_id)[0].tries == 1)
        row = deliveries(database, hook_id)[0]
        assert (row.state, row.status_code, row.problem) == ("waiting", code, problem)
        receiver.answers["/hook"] = status(200)
        with database.write() as session:
            subscriptions.reset_backoff(session.get_one(Webhook, hook_id))
        wait_until(lambda: states(database, hook_id) == {"delivered"})

    row = deliveries(database, hook_id)[0]
    assert (row.tries, row.status_code, row.problem) == (2, 200, "")
    assert set(received_ids(receiver, "/hook")) == {row.id}


def test_private_address_that_is_not_listed_is_never_reached(database: Database, receiver: WebServer) -> None:
    hook_id = hook(database, receiver.url("/hook", "localhost"))
    warn(database)

    with delivering(database, TRAINYARD_WEBHOOK_ALLOW=""):
        wait_until(lambda: deliveries(database, hook_id)[0].tries == 1)

    assert "TRAINYARD_WEBHOOK_ALLOW" in deliveries(database, hook_id)[0].problem
    assert receiver.seen == []


def test_coordinator_with_another_secret_key_sends_nothing_unsigned(database: Database, receiver: WebServer) -> None:
    receiver.answers["/hook"] = status(200)
    hook_id = hook(database, receiver.url("/hook"))
    warn(database)

    with delivering(database, TRAINYARD_SECURITY_SECRET_KEY=""):
        wait_until(lambda: deliveries(database, hook_id)[0].tries == 1)

    assert "secret key" in deliveries(database, hook_id)[0].problem
    assert receiver.seen == []


# ---- many receivers


def test_hanging_receivers_do_not_delay_others(database: Database, receiver: WebServer) -> None:
    receiver.answers |= {"/hang": hang, "/good": status(200)}
    for _ in range(6):
        hook(database, receiver.url("/hang"))
    good = hook(database, receiver.url("/good"), project="other")
    warn(database)
    event_ids = warn(database, 5, project="other")
    began = time.monotonic()

    with delivering(database, TRAINYARD_WEBHOOK_THREADS="4", TRAINYARD_WEBHOOK_TIMEOUT_SECONDS="5"):
        wait_until(lambda: states(database, good) == {"delivered"})
        took = time.monotonic() - began
        receiver.closing.set()

    assert took < 5
    assert [row.event_id for row in deliveries(database, good)] == event_ids
    assert len(receiver.asked("/hang")) == 1  # a quarter of the threads


def test_receivers_are_notified_in_parallel_up_to_the_limit(database: Database, receiver: WebServer) -> None:
    together = threading.Barrier(3, timeout=20)

    def meet(handler: Handler) -> None:
        together.wait()  # answers only when three are here
        handler.answer(200)

    receiver.answers["/meet"] = meet
    hooks = []
    for project in ("a", "b", "c"):
        hooks.append(hook(database, receiver.url("/meet"), project=project))
        warn(database, 2, project=project)

    with delivering(database, TRAINYARD_WEBHOOK_THREADS="3"):
        wait_until(lambda: states(database, *hooks) == {"delivered"})

    assert len(receiver.asked("/meet")) == 6


@pytest.mark.long
def test_two_coordinators_send_each_delivery_once_and_in_order(database: Database, receiver: WebServer) -> None:
    receiver.answers |= {f"/{number}": status(200) for number in range(4)}
    hooks = [hook(database, receiver.url(f"/{number}"), project=f"p{number}") for number in range(4)]
    for number in range(4):
        warn(database, 15, project=f"p{number}")

    with delivering(database), delivering(database):
        wait_until(lambda: states(database, *hooks) == {"delivered"})

    for number, each in enumerate(hooks):
        assert received_ids(receiver, f"/{number}") == [row.id for row in deliveries(database, each)]


# ---- ends


def test_end_does_not_wait_for_a_receiver_that_hangs(database: Database, receiver: WebServer) -> None:
    receiver.answers["/hook"] = hang
    hook_id = hook(database, receiver.url("/hook"))
    warn(database)

    with delivering(database, TRAINYARD_WEBHOOK_TIMEOUT_SECONDS="20"):
        wait_until(lambda: receiver.asked("/hook"))
        began = time.monotonic()
    took = time.monotonic() - began
    receiver.closing.set()

    assert took < 5
    assert deliveries(database, hook_id)[0].state == "waiting"
    wait_until(lambda: not any(thread.name == f"webhook-{hook_id}" for thread in threading.enumerate()))


def test_trouble_of_the_database_is_logged_and_ends_nothing(
    database: Database, receiver: WebServer, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(handler: Handler) -> None:
        with database.write() as session:
            session.execute(text("ALTER TABLE webhook_delivery RENAME TO away"))
        handler.answer(200)

    receiver.answers["/hook"] = answer
    hook_id = hook(database, receiver.url("/hook"))
    warn(database)
    caplog.set_level(logging.INFO)

    with delivering(database):
        wait_until(lambda: "failed and will be retried" in caplog.text)
        with database.write() as session:
            session.execute(text("ALTER TABLE away RENAME TO webhook_delivery"))
            # Expire the turn that the failed transaction left open.
            session.get_one(Webhook, hook_id).turn_until = None
        receiver.answers["/hook"] = status(200)
        wait_until(lambda: states(database, hook_id) == {"delivered"})

    assert len(set(received_ids(receiver, "/hook"))) == 1
    assert SECRET not in caplog.text
    assert receiver.url("/hook") not in caplog.text
