"""Attempts of jobs with roles: placed with their instances or not at all, accounted for by kind and by node."""

from typing import Any

import pytest
from sqlalchemy import select

from app.database.engine import Database
from app.domain.lifecycle.outcomes import Outcome
from app.domain.lifecycle.states import JobState
from app.models import Job, Project, Reservation
from app.services.attempts import work_orders
from app.services.nodes import registry
from app.services.operations import integrity
from app.services.queues import project_quotas
from app.services.scheduling import planner, running_jobs
from tests.builders.factories import make_document
from tests.builders.walks import NO_WAIT, attempt_of, job_of, make_job, make_node, start_attempt

pytestmark = pytest.mark.both_databases


def role(name: str, count: int, devices: int, kind: str = "cpu", **more: Any) -> dict[str, Any]:
    return {
        "role": name,
        "count": count,
        "resource_config": {"gpu_count": devices, "device_type": kind, **more.pop("resources", {})},
        "training_config": more,
    }


def document(*tasks: dict[str, Any], **scheduling: Any) -> dict[str, Any]:
    framework = {"type": "CUSTOM", "custom_command": ["true"]}
    made = make_document(training_config={"framework": framework}, scheduling_config=scheduling)
    return {**made, "resource_config": {}, "tasks": list(tasks)}


TWO = document(role("trainer", 1, 2), role("rollout", 2, 1))
MIXED = document(role("reward", 1, 2), role("trainer", 1, 1, "cuda"))


def held(db: Database) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    with db.read() as session:
        for node, index in session.execute(select(Reservation.node, Reservation.device_index)):
            found.setdefault(node, []).append(index)
    return {node: sorted(indices) for node, indices in found.items()}


def waiting(db: Database, made: dict[str, Any]) -> str:
    return make_job(db, state=JobState.QUEUED, document=made)


def test_instances_are_placed_together_with_their_ranks(database: Database) -> None:
    make_node(database, "n1")
    make_node(database, "n2")
    job_id = waiting(database, TWO)

    dispatched = planner.plan_once(database)

    assert [each.node for each in dispatched] == ["n1", "n2"]
    attempt = attempt_of(database, job_id)
    assert attempt.device_indices == [[0, 1], [0, 1]]
    assert attempt.instances == [
        {"role": "trainer", "index": 0, "node": "n1", "part": 0, "devices": [0, 1], "first_rank": 0, "ranks": 2},
        {"role": "rollout", "index": 0, "node": "n2", "part": 1, "devices": [0], "first_rank": 2, "ranks": 1},
        {"role": "rollout", "index": 1, "node": "n2", "part": 1, "devices": [1], "first_rank": 3, "ranks": 1},
    ]
    assert held(database) == {"n1": [0, 1], "n2": [0, 1]}
    assert list(integrity.problems(database)) == []


def test_a_job_that_fits_on_one_node_is_on_one(database: Database) -> None:
    make_node(database, "n1", devices=2)
    make_node(database, "n2", devices=4)
    job_id = waiting(database, TWO)

    planner.plan_once(database)

    assert job_of(database, job_id).node_names == ["n2"]


def test_nothing_is_placed_while_an_instance_is_missing(database: Database) -> None:
    make_node(database, "n1", devices=2)
    make_node(database, "n2", devices=1)
    job_id = waiting(database, TWO)

    assert planner.plan_once(database) == []

    assert held(database) == {}
    assert job_of(database, job_id).pending_reason == (
        "needs trainer 1 × 2 CPU slots and rollout 2 × 1 CPU slot, all at once; "
        "the ready nodes together are too small for that, even when nothing runs on them"
    )


def test_processes_of_an_instance_are_its_ranks(database: Database) -> None:
    make_node(database, "n1", devices=4)
    job_id = waiting(database, document(role("a", 2, 1, config={"num_proc_per_node": 3}), role("b", 1, 1)))

    planner.plan_once(database)

    instances = attempt_of(database, job_id).instances or []
    assert [(each["first_rank"], each["ranks"]) for each in instances] == [(0, 3), (3, 3), (6, 1)]


def test_devices_of_each_kind_are_accounted_for(database: Database) -> None:
    make_node(database, "cpus", devices=2)
    make_node(database, "gpus", devices=2, device_type="h100", memory_mb=80_000)
    with database.write() as session:
        session.add(Project(name="default", quota={"gpus": {"limit": 1}, "cpu_slots": {"limit": 2}}))
    first, second = waiting(database, MIXED), waiting(database, MIXED)

    planner.plan_once(database)

    attempt = attempt_of(database, first)
    assert attempt.device_type == "h100"
    assert held(database) == {"cpus": [0, 1], "gpus": [0]}
    assert job_of(database, second).state is JobState.QUEUED
    assert "of at most" in job_of(database, second).pending_reason
    with database.read() as session:
        assert project_quotas.usage(session, "default").devices == {"cuda": 1, "cpu": 2}
        by_node = {each.node: each for each in running_jobs.running(session)}
    assert {name: (each.kind, each.amount, each.by_kind) for name, each in by_node.items()} == {
        "cpus": ("cpu", 2, {"cpu": 2, "cuda": 1}),
        "gpus": ("cuda", 1, {"cpu": 2, "cuda": 1}),
    }


def test_amounts_are_held_where_the_instances_are(database: Database) -> None:
    make_node(database, "n1", devices=2, cpu_cores=8)
    make_node(database, "n2", devices=2, cpu_cores=8)
    waiting(
        database, document(role("a", 1, 2, resources={"cpu_cores": 5}), role("b", 2, 1, resources={"cpu_cores": 2}))
    )

    planner.plan_once(database)

    with database.read() as session:
        cores = {node.name: node.held.cpu_cores for node in registry.capacities(session)}
        running = {each.node: each.quantities.cpu_cores for each in running_jobs.running(session)}
    assert cores == running == {"n1": 5, "n2": 4}


def test_what_it_needs_is_preempted_on_all_nodes(database: Database) -> None:
    works = []
    for name in ("n1", "n2"):
        make_node(database, name)
        small = make_document(scheduling_config={"preemptible": True}, resource_config={"gpu_count": 2})
        works.append(
            start_attempt(database, make_job(database, JobState.QUEUED, document=small, priority=1), node=name)
        )
    job_id = make_job(database, JobState.QUEUED, document=TWO, priority=9)

    assert planner.plan_once(database) == []

    waits = job_of(database, job_id)
    assert (waits.awaits_node, waits.awaits_others) == ("n1", ["n2"])
    assert {job_of(database, work.job_id).requested for work in works} == {"preempt"}
    work_orders.finish(database, works[0], Outcome(kind="preempted"), NO_WAIT)
    assert planner.plan_once(database) == [], "what has become free is kept for it"
    work_orders.finish(database, works[1], Outcome(kind="preempted"), NO_WAIT)
    assert [each.node for each in planner.plan_once(database)] == ["n1", "n2"]


def test_it_is_preempted_as_a_whole(database: Database) -> None:
    for name in ("n1", "n2"):
        make_node(database, name)
    victim = waiting(database, document(role("trainer", 1, 2), role("rollout", 2, 1), preemptible=True))
    planner.plan_once(database)
    with database.write() as session:
        session.get_one(Job, victim).status = JobState.TRAINING
    asked = make_document(resource_config={"gpu_count": 2})
    make_job(database, JobState.QUEUED, document=asked, priority=9)

    planner.plan_once(database)

    assert job_of(database, victim).requested == "preempt"
