"""A job that asks a model: over its channel, its real supervisor, a real gateway, a relay, and a fake engine."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import select

from app.domain.lifecycle.states import JobState
from app.models import ModelUsage
from tests.builders.factories import make_document, make_job
from tests.systems.apps import SECRET_KEY
from tests.systems.gateways import GatewaySite
from tests.systems.servers import free_port
from tests.systems.supervising import World
from tests.systems.system import wait_for

# Speaks the protocol as built-in trainers do: a script may, too, and gets no more by it.
ASKS = """
import json, os, threading
from trainyard.protocol.messages import Result
from workers.rank.run_context import NotAnswered, supervised_run

run = supervised_run(os.environ["TRAINYARD_SPEC"], on_orphaned=lambda: os._exit(3))
run.phase("TRAINING")

def ask(model, text, path="/v1/chat/completions", **more):
    try:
        answer = run.ask(path, {"model": model, "messages": [{"role": "user", "content": text}], **more})
        said = f'answer {answer["choices"][0]["message"]["content"][:100]}\\n'
    except NotAnswered as error:
        said = f"refused {error.http_status} {error}\\n"
    os.write(1, said.encode())  # at once: threads may say something at the same time

SAYS
run.finish(Result(step=1))
"""


@pytest.fixture
def asking(tmp_path: Path, make_world: Callable[..., World]) -> Iterator[tuple[World, GatewaySite]]:
    """A node that knows the gateway, on the same database."""
    port = str(free_port())
    world = make_world(TRAINYARD_SECURITY_SECRET_KEY=SECRET_KEY, TRAINYARD_GATEWAY_URL=f"http://127.0.0.1:{port}")
    site = GatewaySite(world.db, tmp_path / "site", TRAINYARD_GATEWAY_PORT=port)
    site.folder.mkdir(exist_ok=True)
    yield world, site.serve()
    site.close()


def start(world: World, says: str, *, model: str = "support", ranks: int = 1) -> str:
    """A job whose document names the model, as that of its grader."""
    path = world.directory / "mine" / "asks" / "train.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(ASKS.replace("SAYS", says))
    document = make_document(
        training_config={
            "base_model": {"model_id": "none"},
            "framework": {"type": "CUSTOM", "custom_script_path": str(path)},
            "grader": {
                "type": "score_model",
                "name": "judge",
                "model": model,
                "input": [{"role": "user", "content": "Rate {{sample.output_text}}"}],
            },
        },
        data_config={"sources": [{"path": str(world.directory / "mine/data.jsonl")}]},
        resource_config={"gpu_count": ranks},
    )
    with world.db.write() as session:
        job = make_job(session, document=document, max_retries=0, created_by="key-of-job")
    world.take_up(job.id, ranks=ranks)
    return job.id


@pytest.mark.long
def test_a_job_asks_the_model_that_its_document_names_and_its_key_is_charged(asking: tuple[World, GatewaySite]) -> None:
    world, site = asking
    engine, place = site.engine()
    site.replica(site.service(), place)
    says = """
ask("support", "say hello you")
ask("other", "say something")
ask("support", "say hello", stream=True)
ask("support", "say hello", path="/v1/models")
ask("support", "say hello", temperature=7)
"""

    job_id = start(world, says)
    job = world.wait_for_end(job_id)

    assert job.state is JobState.COMPLETED, world.describe(job_id)
    said = [line for line in world.log(job_id) if line.startswith(("answer", "refused"))]
    assert said[:4] == [
        "answer hello you",
        "refused 403 the job may not ask other: its document names support",
        "refused 400 a job gets whole answers; leave stream out",
        "refused 404 no path /v1/models; known: /v1/chat/completions, /v1/completions, /v1/embeddings",
    ]
    assert said[4].startswith("refused 400"), "the gateway's own refusals are passed on"
    assert len(engine.requests) == 1

    def charged() -> bool:
        with world.db.read() as session:
            return [row.key_id for row in session.scalars(select(ModelUsage))] == ["key-of-job"]

    wait_for(charged, seconds=10, what="the usage")


@pytest.mark.long
def test_large_answers_reach_many_threads_whole(asking: tuple[World, GatewaySite]) -> None:
    world, site = asking
    _, place = site.engine()
    site.replica(site.service(), place)
    says = """
words = "say " + "w" * 300_000
threads = [threading.Thread(target=ask, args=("support", words)) for _ in range(40)]
[each.start() for each in threads]
[each.join() for each in threads]
"""

    job_id = start(world, says)
    job = world.wait_for_end(job_id, 60)

    assert job.state is JobState.COMPLETED, world.describe(job_id)
    assert [line for line in world.log(job_id) if line.startswith(("answer", "refused"))] == [
        "answer " + "w" * 100
    ] * 40


def test_a_node_without_a_gateway_refuses_such_jobs(world: World) -> None:
    job_id = start(world, 'ask("support", "say hello")')

    job = world.wait_for_end(job_id)

    assert job.error_type == "INTERNAL", world.describe(job_id)
    assert "TRAINYARD_GATEWAY_URL" in (job.error_message or "")


@pytest.mark.long
def test_a_gateway_that_is_away_for_a_moment_is_asked_again(asking: tuple[World, GatewaySite]) -> None:
    world, site = asking
    _, place = site.engine()
    service = site.service()
    site.set_service(service, spec={"name": "support", "limits": {"cold_start_seconds": 1}})
    job_id = start(world, 'print("asks", flush=True)\nask("support", "say at last")')
    world.wait_for_line(job_id, "asks")

    world.wait(lambda: True, 1.0)
    site.replica(service, place)
    job = world.wait_for_end(job_id, 40)

    assert job.state is JobState.COMPLETED, world.describe(job_id)
    assert "answer at last" in world.log(job_id)
