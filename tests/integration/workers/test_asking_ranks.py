"""What ranks are asked for: the training of a job, and not the scripts beside it."""

import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from app.services.attempts import work_orders
from tests.builders.factories import make_attempt, make_job, make_node
from tests.doubles.supervisor_doubles import EndedAgent, Part, WithRealRanks, prepared
from tests.systems.supervising import World
from trainyard.protocol.channel import encode, short_address
from workers.supervisor.assembly import Assembly
from workers.supervisor.control.rank_group import RankGroup


@pytest.fixture
def assembly(world: World) -> Assembly:
    with world.db.write() as session:
        job = make_job(session)
        make_attempt(session, job, make_node(session, "n"))
        job_id = job.id
    work = work_orders.load_work(world.db, job_id, 1)
    return WithRealRanks(world.settings, world.db, work, time.monotonic(), part=Part())


@pytest.fixture
def ranks(assembly: Assembly) -> Iterator[RankGroup]:
    """Launched ranks, without any process."""
    ours, theirs = socket.socketpair()
    disk = assembly.disk_watch(on_waiting=lambda _: None, on_over=lambda _: None)
    recorders = assembly.recorders(disk, answer=lambda _: None, on_lost=lambda _: None)
    found = assembly.rank_group(recorders, on_training=lambda: None, on_pause_failed=lambda _: None)
    agent: Any = EndedAgent(ours)
    found.launch(prepared(assembly), start=lambda _: agent)
    yield found
    theirs.close()
    found.end(lambda: 0.0)
    recorders.close()
    assembly.loop.close()


def test_scripts_beside_a_training_are_not_asked_to_stop_or_save(ranks: RankGroup, assembly: Assembly) -> None:
    """One that ended for a pause would be missing to the training, which asks it until it has saved."""
    assembly.observations.scripts = {1}
    ranks.ask_to_stop("pause", save=True, force=False)
    with socket.socket(socket.AF_UNIX) as trains, socket.socket(socket.AF_UNIX) as judges:
        for number, client in enumerate((trains, judges)):
            with short_address(assembly.context.run.channel) as address:
                client.connect(address)
            client.sendall(encode({"type": "hello", "rank": number, "can_checkpoint": True}))
        assembly.loop.run_until(lambda: [each.greeted for each in ranks._connections()] == [True, True])
        for scripts in ({1}, set[int]()):
            assembly.observations.scripts = scripts
            ranks.ask_for_checkpoint()
            ranks.ask_for_stacks()
        assert types(trains, 5) == ["pause", "checkpoint", "stacks", "checkpoint", "stacks"]
        assert types(judges, 3) == ["stacks", "checkpoint", "stacks"], "where scripts are the job, they are asked"


def types(client: socket.socket, count: int) -> list[str]:
    client.settimeout(10)
    with client.makefile("rb") as lines:
        return [json.loads(lines.readline())["type"] for _ in range(count)]
