"""What node.toml allows and presets, from a node that registers with it to the attempts that run there."""

import threading
from pathlib import Path
from typing import Any

import pytest

from app.database.engine import Database
from app.domain.lifecycle.outcomes import Outcome
from app.domain.lifecycle.states import JobState
from app.domain.scheduling.placement import Placement
from app.domain.scheduling.resources import Device
from app.domain.spec.inference import BATCH, EVALUATION, FEATURES
from app.models import Node
from app.services.attempts import checkpoints, work_orders
from app.services.nodes import registry
from app.services.nodes.registry import NodeReport
from app.services.operations import heartbeat_counters
from app.services.scheduling import placement, planner
from tests.builders import factories
from tests.builders.walks import NO_WAIT, job_of, make_job, make_node, save, start_attempt
from trainyard.protocol.run_spec import RunSpec
from workers.prepare.inputs.input_library import JobInputs
from workers.prepare.inputs.resume_point import StartPoint
from workers.prepare.prepare import make_spec
from workers.run_dir.layout import RunDirectory

pytestmark = pytest.mark.both_databases


def report(**limits: Any) -> NodeReport:
    return NodeReport(
        name="n1",
        devices=(),
        cpu_cores=2,
        ram_mb=1,
        storage_mb=1,
        sandbox="process",
        version="",
        boot_id="b",
        limits=limits,
    )


def state_of(db: Database) -> str:
    with db.read() as session:
        return session.get_one(Node, "n1").state


def queued(db: Database, count: int = 1, **sections: Any) -> list[str]:
    document = factories.make_document(**sections)
    return [make_job(db, state=JobState.QUEUED, document=document) for _ in range(count)]


def placed(db: Database) -> list[str]:
    return [each.job_id for each in planner.plan_once(db)]


def test_a_new_node_that_is_not_accepted_by_itself_waits_for_an_administrator(database: Database) -> None:
    assert registry.register(database, report(auto_accept=False)) == "drained"
    assert registry.heartbeat(database, "n1") == "drained"

    registry.set_state(database, "n1", "ready")

    assert registry.register(database, report(auto_accept=False)) == "ready", "it is known"


def test_other_new_nodes_are_ready(database: Database) -> None:
    assert registry.register(database, report(auto_accept=True)) == "ready"
    assert state_of(database) == "ready"


def test_a_node_that_takes_no_trainings_is_given_none(database: Database) -> None:
    make_node(database, limits={"accept_training": False})
    (job_id,) = queued(database)

    assert placed(database) == []
    assert "n1 takes no trainings (accept_training in node.toml)" in job_of(database, job_id).pending_reason


@pytest.mark.parametrize("kind", [BATCH, FEATURES, EVALUATION])
def test_a_node_that_takes_trainings_only_is_given_nothing_else(database: Database, kind: str) -> None:
    make_node(database, limits={"accept_inference": False})
    (other,) = queued(database, kind=kind)
    (training,) = queued(database)

    assert placed(database) == [training]
    assert "n1 takes trainings only (accept_inference in node.toml)" in job_of(database, other).pending_reason


def test_a_node_without_trainings_is_given_batches(database: Database) -> None:
    make_node(database, limits={"accept_training": False})
    queued(database)
    (batch,) = queued(database, kind=BATCH)

    assert placed(database) == [batch]


def test_a_node_runs_no_more_jobs_than_it_may(database: Database) -> None:
    make_node(database, devices=8, limits={"max_concurrent": 2})
    jobs = queued(database, 4)

    assert placed(database) == jobs[:2]
    assert placed(database) == []
    reason = "free: 6 on n1, which runs 2 of at most 2 jobs (max_concurrent in node.toml)"
    assert reason in job_of(database, jobs[2]).pending_reason


def test_the_next_one_starts_when_one_has_ended(database: Database) -> None:
    make_node(database, devices=8, limits={"max_concurrent": 1})
    first, second = queued(database, 2)
    work = start_attempt(database, first)
    assert placed(database) == []

    work_orders.finish(database, work, Outcome(kind="failed", cause="SCRIPT_ERROR"), NO_WAIT)

    assert placed(database) == [second]


def test_two_planners_do_not_both_give_it_the_last_job(database: Database) -> None:
    make_node(database, limits={"max_concurrent": 1})
    first, second = queued(database, 2)
    found: list[str] = []
    other = threading.Thread(target=lambda: found.extend(placed(database)))

    with database.write() as session:
        mine = Placement(job_id=second, node="n1", devices=(Device(index=1, type="cpu"),))
        placement.apply(session, [mine], "me")
        other.start()
        other.join(0.3)  # it has decided on the first job, and waits for the node, or for the whole database
    other.join()

    assert found == []
    assert [job_of(database, job_id).state for job_id in (first, second)] == [JobState.QUEUED, JobState.SCHEDULING]


@pytest.mark.parametrize(("asked", "threads"), [({}, 3), ({"cpu_cores": 1}, 1)])
def test_threads_come_from_the_node_where_the_job_requests_none(
    database: Database, asked: dict[str, int], threads: int
) -> None:
    make_node(database, limits={"default_cpu_threads": 3})
    (job_id,) = queued(database, resource_config=asked)

    assert start_attempt(database, job_id).threads_per_rank == threads


def spec_of(work: work_orders.WorkOrder) -> RunSpec:
    nothing = JobInputs(model=None, tokenizer=None, data=(), script=None)
    start = StartPoint(path=None, step=0, checkpoint_id=None, rejected=())
    return make_spec(work, RunDirectory(Path("/run")), nothing, start)


@pytest.mark.parametrize(
    ("said", "saving"),
    [
        ({}, {"save_strategy": "epoch", "save_epochs": 5}),
        ({"save_total_limit": 9}, {"save_total_limit": 9, "save_strategy": "epoch", "save_epochs": 5}),
        ({"save_steps": 7}, {"save_steps": 7}),
        ({"save_strategy": "steps"}, {"save_strategy": "steps"}),
    ],
)
def test_a_job_that_does_not_say_when_to_save_does_as_its_node_says(
    database: Database, said: dict[str, Any], saving: dict[str, Any]
) -> None:
    make_node(database, limits={"checkpoint_interval_epochs": 5})
    (job_id,) = queued(database, output_config={"checkpoint": said})

    assert spec_of(start_attempt(database, job_id)).output_config == {"checkpoint": saving}


def test_without_presets_the_document_is_handed_on_as_it_is(database: Database) -> None:
    make_node(database)
    (job_id,) = queued(database, output_config={"checkpoint": {}})

    spec = spec_of(start_attempt(database, job_id))

    assert (spec.output_config, spec.gpu_memory_percent) == ({"checkpoint": {}}, None)


def test_presets_of_the_first_attempt_hold_for_the_next_but_the_share_of_memory_is_the_node_s(
    database: Database,
) -> None:
    make_node(database, limits={"checkpoint_interval_epochs": 5, "default_gpu_memory_percent": 80})
    (job_id,) = queued(database)
    first = start_attempt(database, job_id)
    work_orders.finish(database, first, Outcome(kind="requeued"), NO_WAIT)
    with database.write() as session:
        session.get_one(Node, "n1").limits = {"checkpoint_interval_epochs": 2, "default_gpu_memory_percent": 50}

    second = start_attempt(database, job_id)

    assert (first.node_defaults, second.node_defaults) == ({"checkpoint_interval_epochs": 5},) * 2
    assert [spec_of(work).gpu_memory_percent for work in (first, second)] == [80, 50]


@pytest.mark.parametrize(("said", "steps"), [({}, [3]), ({"save_total_limit": 2}, [2, 3])])
def test_the_node_says_how_many_checkpoints_are_kept(
    database: Database, said: dict[str, int], steps: list[int]
) -> None:
    make_node(database, limits={"max_checkpoints": 1})
    (job_id,) = queued(database, output_config={"checkpoint": said})
    work = start_attempt(database, job_id)

    for step in (1, 2, 3):
        save(database, work, step)

    with database.read() as session:
        assert [c.step for c in checkpoints.list_for(session, job_id)] == steps


def test_what_an_older_worker_has_stored_unchecked_does_not_count(database: Database) -> None:
    make_node(database, limits={"max_concurrent": "3", "max_running": 0})
    (job_id,) = queued(database)

    assert placed(database) == [job_id]


def test_a_node_with_an_interval_of_its_own_is_known_by_it(database: Database) -> None:
    registry.register(database, report(heartbeat_interval_ms=3000))

    assert [beat.every_seconds for beat in registry.heartbeats(database)] == [3.0]
    with database.read() as session:
        assert heartbeat_counters.interval_of_node(session, "n1") == 3.0
        assert heartbeat_counters.interval_of_node(session, "gone") is None
