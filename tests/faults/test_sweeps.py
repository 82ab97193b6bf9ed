"""A deterministic sweep ends with the same trials, values and results, whatever is killed while it runs."""

import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.systems.installations import running_system
from tests.systems.system import System, wait_for

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

# Every step takes long enough for a kill to come in between; what it reports depends on its values alone.
SCRIPT = """
import math, sys, time
import trainyard.hooks as hooks

rate = float(sys.argv[1])
run = hooks.init()
for step in range(1, 10):
    run.progress(step, 9)
    run.log_metrics({"eval_loss": (math.log10(rate) + 3) ** 2 + 1 / step}, step=step)
    time.sleep(0.15)
run.finish()
"""


def document(name: str) -> dict[str, Any]:
    framework = {"type": "CUSTOM", "custom_script_path": "INPUTS/train.py", "custom_arguments": ["$(sweep.rate)"]}
    return {
        "name": name,
        "job": {
            "training_config": {
                "training_type": "SFT",
                "base_model": {"model_id": "INPUTS/model"},
                "framework": framework,
                "max_retries": 5,
            },
            "data_config": {"sources": [{"path": "INPUTS/data.jsonl"}]},
            "resource_config": {"gpu_count": 1, "device_type": "cpu"},
        },
        "parameters": {"rate": {"type": "double", "min": 1e-5, "max": 1e-1, "scale": "log"}},
        "objective": {"metric": "eval_loss", "select": "last"},
        "method": {"name": "tpe", "seed": 11, "startup_trials": 3},
        "early_stopping": {"name": "asha", "min": 3, "max": 9},
        "budget": {"max_trials": 8, "parallel_trials": 2},
        "deterministic": True,
    }


def located(part: Any, inputs: Path) -> Any:
    if isinstance(part, dict):
        return {name: located(value, inputs) for name, value in part.items()}
    if isinstance(part, list):
        return [located(value, inputs) for value in part]
    return part.replace("INPUTS", str(inputs)) if isinstance(part, str) else part


def create(system: System, name: str) -> str:
    status, body = system.call("POST", "/v1/sweeps", located(document(name), system.inputs))
    assert status == 201, body
    return str(body["data"]["sweep_id"])


def trials(system: System, sweep_id: str) -> list[dict[str, Any]]:
    return list(system.get(f"/v1/sweeps/{sweep_id}/trials?page_size=100")["trials"])


def outcome(system: System, sweep_id: str) -> list[tuple[Any, ...]]:
    return [(t["number"], t["values"], t["state"], t["objectives"], t["step"]) for t in trials(system, sweep_id)]


def status_of(system: System, sweep_id: str) -> str:
    try:
        code, body = system.call("GET", f"/v1/sweeps/{sweep_id}")
    except OSError:
        return ""
    return str(body["data"]["status"]) if code == 200 else ""


def trains(system: System, sweep_id: str, made: int) -> bool:
    """Whether so many trials were made, and one of them trains."""
    found = trials(system, sweep_id)
    return len(found) >= made and any(trial["job_status"] == "TRAINING" for trial in found)


def wait_for_end(system: System, sweep_id: str) -> None:
    wait_for(
        lambda: status_of(system, sweep_id) in ("COMPLETED", "FAILED", "CANCELLED"),
        seconds=120,
        what="the sweep to end",
    )


def kill_everything(system: System, sweep_id: str) -> None:
    """The coordinator with its process of the method, the API, the node worker, and a supervisor."""
    running = [
        t["job_id"] for t in trials(system, sweep_id) if t["state"] == "RUNNING" and t["job_status"] == "TRAINING"
    ]
    for child in psutil.Process(system.pid("coordinator")).children():
        if "app.search" in child.cmdline():
            os.kill(child.pid, signal.SIGKILL)
    for job_id in running[:1]:
        system.supervisor_of(job_id).kill()
    for name in ("coordinator", "node-n1", "api"):
        system.kill(name)
    system.start_api()
    system.start_coordinator()
    system.start_node("n1")
    wait_for(system.is_ready, seconds=60, what="ready")


def test_a_sweep_whose_processes_are_all_killed_twice_ends_as_an_undisturbed_one(
    tmp_path: Path, owned_pids: set[int]
) -> None:
    with running_system(tmp_path, owned_pids, "n1") as system:
        (system.inputs / "train.py").write_text(SCRIPT)
        undisturbed = create(system, "undisturbed")
        wait_for_end(system, undisturbed)

        disturbed = create(system, "disturbed")
        for made in (3, 6):
            wait_for(partial(trains, system, disturbed, made), seconds=90, what=f"{made} trials")
            kill_everything(system, disturbed)
        wait_for_end(system, disturbed)

        assert (status_of(system, undisturbed), status_of(system, disturbed)) == ("COMPLETED", "COMPLETED")
        assert outcome(system, disturbed) == outcome(system, undisturbed)
        assert {"STOPPED", "COMPLETED"} == {t["state"] for t in trials(system, disturbed)}
        for sweep_id in (undisturbed, disturbed):
            replayed = system.get(f"/v1/sweeps/{sweep_id}/replay")
            assert (replayed["is_equal"], replayed["suggestions"]) == (True, 8)
