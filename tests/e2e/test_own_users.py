"""Attempts of a node of root have host users of their own, through the whole system."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from app.host.own_users import lack_of_own_users
from tests.e2e.test_sft_job import sft_job
from tests.systems.forked_agents import ForkedAgents
from tests.systems.installations import counting_job
from tests.systems.system import System

pytestmark = pytest.mark.skipif(
    bool(lack := lack_of_own_users("700000-765535", Path("/tmp"))),
    reason=f"here no attempt has a user of its own: {lack}",
)


def users_of(processes: list[psutil.Process]) -> set[int]:
    return {uid for process in processes for uid in process.uids()}


def outside(system: System, job_id: str) -> set[int]:
    """Users on the machine of the job's agent and ranks."""
    ranks = system.ranks_of(job_id)
    return users_of([*ranks, *(parent for rank in ranks if (parent := rank.parent()) is not None)])


@pytest.mark.long
def test_jobs_beside_each_other_have_different_users(shared_system: System) -> None:
    system = shared_system
    jobs = [system.submit(counting_job(steps=5000, step_seconds=0.05)) for _ in range(2)]
    for job_id in jobs:
        system.wait_for_step(job_id, 12)
    first, second = (outside(system, job_id) for job_id in jobs)
    run_dirs = [next((system.data_dir / "run" / "jobs" / job_id).glob("1")) for job_id in jobs]
    owners = {path.stat().st_uid for each in run_dirs for path in [each, *each.rglob("*")]}
    for job_id in jobs:
        system.call("POST", f"/v1/jobs/{job_id}/cancel", {"reason": "enough"})
        system.wait_for_status(job_id, "CANCELLED")

    (node,) = system.get("/v1/nodes")["nodes"]
    assert "sandbox:uid" in node["capabilities"]
    assert (len(first), len(second)) == (1, 1)
    assert first.isdisjoint(second)
    assert min(first | second) >= 700_000
    assert owners == {os.getuid()}, "what they write is the worker's"


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("warm", ["auto", "off"], ids=["forked", "as programs"])
def test_training_is_paused_and_resumed_by_two_ranks(
    warm: str, make_system: Callable[..., System], forked_agents: ForkedAgents, assets: dict[str, str]
) -> None:
    roots = str(Path(assets["model"]).parent)
    system = make_system(TRAINYARD_STORAGE_ROOTS=roots, TRAINYARD_NODE_WARM=warm).start("n1")
    if warm == "auto":
        forked_agents.serve_system(system)

    job_id = system.submit(_requiring(sft_job(assets, steps=60, ranks=2)))
    system.wait_for_step(job_id, 12, seconds=240)
    users = [outside(system, job_id)]
    assert system.call("POST", f"/v1/jobs/{job_id}/pause", {})[0] in (200, 202)
    system.wait_for_status(job_id, "PAUSED", seconds=60)
    assert system.call("POST", f"/v1/jobs/{job_id}/resume", {})[0] in (200, 202)
    system.wait_for_step(job_id, 30, seconds=240)
    users.append(outside(system, job_id))
    job = system.wait_for_status(job_id, "COMPLETED", seconds=240)

    assert job["attempt"] == 2, system.story(job_id)
    assert all(len(each) == 1 and min(each) >= 700_000 for each in users), users
    stored = [path for path in (system.data_dir / "files").rglob("*") if job_id in str(path)]
    assert stored
    assert {path.lstat().st_uid for path in stored} == {os.getuid()}


def _requiring(document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "scheduling_config": {"required_capabilities": ["sandbox:uid"]}}
