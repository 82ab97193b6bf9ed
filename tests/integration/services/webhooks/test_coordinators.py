"""Webhooks with real coordinators: without a broker, and after one was killed in the middle of a try."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.domain.lifecycle.states import JobState
from app.models import Webhook, WebhookDelivery
from app.services.lifecycle import transitions
from tests.builders.factories import make_job, make_webhook
from tests.fetching.web_server import Handler, WebServer, status
from tests.systems.apps import SECRET_KEY
from tests.systems.celery_processes import ROOT, CeleryWorld
from tests.systems.servers import free_port
from tests.systems.system import wait_for


@pytest.fixture
def receiver() -> Iterator[WebServer]:
    with WebServer() as server:
        yield server


@pytest.fixture
def world(tmp_path: Path, database_url: str) -> Iterator[CeleryWorld]:
    """Without a broker: deliveries do not depend on one."""
    made = CeleryWorld(
        tmp_path,
        database_url=database_url,
        broker_url=f"redis://127.0.0.1:{free_port()}/0",
        TRAINYARD_SECURITY_SECRET_KEY=SECRET_KEY,
        TRAINYARD_WEBHOOK_ALLOW="127.0.0.0/8",
    )
    yield made
    made.close()


def pause_a_job(world: CeleryWorld, url: str) -> str:
    """The id of the webhook that is to be notified."""
    with world.db.write() as session:
        hook = make_webhook(session, url=url, key=SECRET_KEY)
        transitions.transition(session, make_job(session), JobState.PAUSED, actor="test")
        return hook.id


def state(world: CeleryWorld) -> str:
    with world.db.read() as session:
        return session.query(WebhookDelivery).one().state


@pytest.mark.long
def test_coordinator_delivers_also_without_a_broker(world: CeleryWorld, receiver: WebServer) -> None:
    receiver.answers["/hook"] = status(200)
    pause_a_job(world, receiver.url("/hook"))

    world.start()

    wait_for(lambda: state(world) == "delivered", seconds=20, what="the delivery")
    assert len(receiver.asked("/hook")) == 1


@pytest.mark.long
def test_what_a_killed_coordinator_was_sending_is_sent_by_another(world: CeleryWorld, receiver: WebServer) -> None:
    def hang(handler: Handler) -> None:
        handler.server.owner.closing.wait(60)

    receiver.answers["/hook"] = hang
    hook_id = pause_a_job(world, receiver.url("/hook"))
    first = world.start()
    wait_for(lambda: receiver.asked("/hook"), seconds=20, what="the first try")

    first.send_signal(signal.SIGKILL)
    first.wait(10)
    receiver.answers["/hook"] = status(200)
    with world.db.write() as session:
        hook = session.get_one(Webhook, hook_id)
        assert hook.turn != ""
        hook.turn_until = hook.created_at  # its time is over
    world.start()

    wait_for(lambda: state(world) == "delivered", seconds=20, what="the second try")
    receiver.closing.set()
    ids = {seen.headers["x-trainyard-delivery"] for seen in receiver.asked("/hook")}
    assert (len(receiver.asked("/hook")), len(ids)) == (2, 1)


@pytest.mark.long
def test_supervisors_and_nodes_load_nothing_that_delivers() -> None:
    program = "import sys, workers.supervisor.main, workers.node.worker_step, tasks.node; print(*sorted(sys.modules))"

    environment = {**os.environ, "TRAINYARD_BROKER_URL": "redis://127.0.0.1:1/0"}
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT, env=environment
    )

    loaded = said.stdout.split()
    assert "app.services.lifecycle.outbox" in loaded
    assert [name for name in loaded if name.startswith("app.services.webhooks")] == []
