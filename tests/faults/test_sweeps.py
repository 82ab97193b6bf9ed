"""A deterministic sweep ends with the same trials, values, results and weights, whatever is killed while it runs."""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from app.cli.local.demo_sweep import document as demo_document
from app.cli.local.demo_sweep import shortened
from tests.faults.cluster import SHORT
from tests.systems.forked_agents import ForkedAgents
from tests.systems.installations import running_system
from tests.systems.system import TRAINYARD, System, wait_for

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


def kill_everything(system: System, sweep_id: str) -> int:
    """The process of the method, the coordinator, a rank and a supervisor of what trains, node, API and Redis.

    How many processes of the method there were.
    """
    running = [
        t["job_id"] for t in trials(system, sweep_id) if t["state"] == "RUNNING" and t["job_status"] == "TRAINING"
    ]
    searching = search_processes(system)  # now, since it ends with its coordinator
    kill_all(searching)
    system.kill("coordinator")
    kill_all([*rank_and_supervisor(system, running)])
    for name in ("node-n1", "api"):
        system.kill(name)
    system.redis.stop(signal.SIGKILL)
    system.redis.start()
    system.start_api()
    system.start_coordinator()
    system.start_node("n1")
    wait_for(system.is_ready, seconds=60, what="ready")
    return len(searching)


def kill_all(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):  # a supervisor may have seen the end of its rank already
            process.kill()


def rank_and_supervisor(system: System, jobs: Sequence[str]) -> Iterator[psutil.Process]:
    """One of each, of different jobs where several run; fewer where a job ends meanwhile."""
    for job_id in jobs[-1:]:
        with contextlib.suppress(psutil.NoSuchProcess):
            yield from system.ranks_of(job_id)[:1]
    for job_id in jobs[:1]:
        with contextlib.suppress(psutil.NoSuchProcess, StopIteration):
            yield system.supervisor_of(job_id)


def search_processes(system: System) -> list[psutil.Process]:
    """The coordinator's, which answers what values to try: it starts with the first question for it."""
    found = []
    for process in psutil.Process(system.pid("coordinator")).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if "app.search" in process.cmdline():
                found.append(process)
    return found


def test_a_sweep_whose_processes_are_all_killed_twice_ends_as_an_undisturbed_one(
    tmp_path: Path, owned_pids: set[int]
) -> None:
    with running_system(tmp_path, owned_pids, "n1") as system:
        (system.inputs / "train.py").write_text(SCRIPT)
        undisturbed = create(system, "undisturbed")
        wait_for_end(system, undisturbed)

        disturbed = create(system, "disturbed")
        wait_for(partial(trains, system, disturbed, 3), seconds=90, what="3 trials")
        kill_everything(system, disturbed)
        # Three startup trials need no process of the method; those of the second half are asked of it.
        wait_for(lambda: trains(system, disturbed, 6) and search_processes(system), seconds=90, what="6 trials")
        searching = kill_everything(system, disturbed)
        wait_for_end(system, disturbed)

        assert (status_of(system, undisturbed), status_of(system, disturbed)) == ("COMPLETED", "COMPLETED")
        assert searching == 1, "the process of the method was killed"
        assert was_retried(system, disturbed), "a rank or a supervisor was killed"
        assert outcome(system, disturbed) == outcome(system, undisturbed)
        assert {"STOPPED", "COMPLETED"} == {t["state"] for t in trials(system, disturbed)}
        for sweep_id in (undisturbed, disturbed):
            replayed = system.get(f"/v1/sweeps/{sweep_id}/replay")
            assert (replayed["is_equal"], replayed["suggestions"]) == (True, 8)


def was_retried(system: System, sweep_id: str) -> bool:
    return any(system.job(t["job_id"])["attempt"] > 1 for t in trials(system, sweep_id))


STEPS, TRIALS = 27, 6


def example(assets: Path, name: str) -> dict[str, Any]:
    """The example of the demo's model with few short trials that save on their way, and end equal in every run."""
    found = shortened(demo_document(assets, None), STEPS)
    training, output = found["job"]["training_config"], found["job"]["output_config"]
    job = {
        **found["job"],
        "training_config": {**training, "max_retries": 5},
        "output_config": {**output, "checkpoint": {"save_steps": 4}},
    }
    budget = {"max_trials": TRIALS, "parallel_trials": 2}
    return {**found, "name": name, "job": job, "budget": budget, "deterministic": True}


def submit_and_watch(system: System, sweep: dict[str, Any]) -> "subprocess.Popen[str]":
    path = system.folder / f"{sweep['name']}.json"
    path.write_text(json.dumps(sweep))
    url = f"http://127.0.0.1:{system.port}"
    return subprocess.Popen(
        [TRAINYARD, "sweep", "submit", str(path), "--watch"],
        env={**os.environ, "TRAINYARD_URL": url, "TRAINYARD_API_KEY": system.key},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ended(watching: "subprocess.Popen[str]") -> str:
    """What the command has printed; it ends when its sweep has completed."""
    said, _ = watching.communicate(timeout=300)
    assert watching.returncode == 0, said
    return said


def trained_weights(system: System, sweep_id: str) -> dict[int, str]:
    """The hash of the weights of each completed trial."""
    completed = [t for t in trials(system, sweep_id) if t["state"] == "COMPLETED"]
    return {t["number"]: system.get(f"/v1/jobs/{t['job_id']}/report")["model_hash"] for t in completed}


@pytest.mark.timeout(600)
def test_the_example_ends_with_the_same_values_and_weights_when_every_process_is_killed_twice(
    make_system: Callable[..., System], forked_agents: ForkedAgents, demo_assets: Path
) -> None:
    system = make_system(TRAINYARD_STORAGE_ROOTS=str(demo_assets), **SHORT).start("n1")
    forked_agents.serve_system(system)
    ended(submit_and_watch(system, example(demo_assets, "undisturbed")))
    watching = submit_and_watch(system, example(demo_assets, "disturbed"))

    def sweeps() -> dict[str, str]:
        return {each["name"]: each["sweep_id"] for each in system.get("/v1/sweeps")["sweeps"]}

    disturbed = wait_for(lambda: sweeps().get("disturbed"), seconds=30, what="the second sweep")
    for made in (1, 4):
        wait_for(partial(trains, system, disturbed, made), seconds=120, what=f"trial {made} to train")
        kill_everything(system, disturbed)
    said = ended(watching)

    undisturbed = sweeps()["undisturbed"]
    hashes = trained_weights(system, disturbed)
    assert outcome(system, disturbed) == outcome(system, undisturbed), said
    assert (hashes, len(hashes) > 0) == (trained_weights(system, undisturbed), True)
    assert [t["number"] for t in trials(system, disturbed)] == list(range(TRIALS))
    assert system.get(f"/v1/sweeps/{disturbed}/replay")["is_equal"] is True
    assert was_retried(system, disturbed), "a rank or a supervisor was killed"
