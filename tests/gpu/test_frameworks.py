"""Frameworks that divide a model, on one GPU: they train, save and resume there."""

from pathlib import Path
from typing import Any

import pytest

from tests.gpu.driver import computing_pids
from tests.gpu.jobs import model_job
from tests.systems.system import System

pytestmark = pytest.mark.gpu

STEPS = 200
FRAMEWORKS: dict[str, dict[str, Any]] = {
    "fsdp": {"type": "FSDP"},
    "zero-2": {"type": "DEEPSPEED", "config": {"zero_stage": "2"}},
    "zero-3": {"type": "DEEPSPEED", "config": {"zero_stage": "3"}},
}


@pytest.mark.parametrize("framework", FRAMEWORKS.values(), ids=FRAMEWORKS)
def test_paused_training_goes_on_where_it_was(shared_system: System, demo: Path, framework: dict[str, Any]) -> None:
    job_id = shared_system.submit(model_job(demo, steps=STEPS, framework=framework))
    shared_system.wait_for_step(job_id, 60, seconds=180)

    assert shared_system.call("POST", f"/v1/jobs/{job_id}/pause")[0] == 202
    paused = shared_system.wait_for_status(job_id, "PAUSED", seconds=60)
    assert shared_system.call("POST", f"/v1/jobs/{job_id}/resume")[0] == 202
    shared_system.wait_for_status(job_id, "COMPLETED", seconds=180)

    first, second = shared_system.get(f"/v1/jobs/{job_id}/attempts")["attempts"]
    assert first["end_step"] == second["start_step"] == paused["current_step"] < second["end_step"] == STEPS
    losses = [point[2] for point in shared_system.get(f"/v1/jobs/{job_id}/metrics")["series"]["loss"]]
    assert len(losses) == STEPS
    assert sum(losses[-20:]) < 0.9 * sum(losses[:20])
    assert computing_pids() == set()
