"""Ranks on a GPU that are forked from a process with their imports make their own context, and train the same."""

from pathlib import Path

import pytest

from app.host.fork_servers import agents_socket
from tests.gpu.driver import computing_pids
from tests.gpu.jobs import model_job
from tests.systems.forked_agents import ForkedAgents
from tests.systems.system import System

pytestmark = pytest.mark.gpu

STEPS = 40


def trained(system: System, demo: Path) -> tuple[str, dict[str, str]]:
    """(hash of the trained weights, environment of the rank as /proc showed it)"""
    deterministic = {"full_determinism": "true"}
    job_id = system.submit(model_job(demo, steps=STEPS, hyperparameters=deterministic))
    system.wait_for_step(job_id, 1, seconds=120)
    (rank,) = system.ranks_of(job_id)
    assert computing_pids() == {rank.pid}
    shown = rank.environ()
    system.wait_for_status(job_id, "COMPLETED", seconds=120)
    return str(system.get(f"/v1/jobs/{job_id}/report")["model_hash"]), shown


def test_forked_rank_trains_the_same_weights(shared_system: System, demo: Path, forked_agents: ForkedAgents) -> None:
    cold, shown_cold = trained(shared_system, demo)
    forked_agents.serve(shared_system.data_dir)
    try:
        warm, shown_warm = trained(shared_system, demo)
    finally:
        agents_socket(shared_system.data_dir).unlink()

    assert warm == cold
    # A program shows all of its environment, a fork what names it.
    assert "CUDA_VISIBLE_DEVICES" in shown_cold
    assert "CUDA_VISIBLE_DEVICES" not in shown_warm
    assert computing_pids() == set()
