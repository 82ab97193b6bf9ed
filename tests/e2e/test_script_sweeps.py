"""Sweeps over scripts that halt: trials of `losers: pause` and members of `pbt`, whatever is killed meanwhile."""

import hashlib
import json
import re
import time
from typing import Any

import psutil
import pytest

from tests.systems.system import System, wait_for

pytestmark = [pytest.mark.long, pytest.mark.timeout(180)]

# A chain of digests, which only each step once and in order gives.
SCRIPT = """
import hashlib, json, pathlib, sys, time
from trainyard import hooks

run = hooks.init()
rate, total = run.hyperparameters["rate"], int(run.hyperparameters["max_steps"])
done, digest = 0, ""
if (path := run.resume_checkpoint()) is not None:
    done, digest = json.loads((pathlib.Path(path) / "state.json").read_text())
print("starts at", done, flush=True)
for step in range(done + 1, total + 1):
    time.sleep(0.05)
    digest = hashlib.sha256(f"{digest} {rate} {step}".encode()).hexdigest()
    print("step", step, flush=True)
    run.log_metrics({"eval_loss": (float(rate) - 3) ** 2 + 1 / step}, step=step)
    run.progress(step, total)
    stop = run.should_stop(step=step)
    if stop:
        with run.checkpoint(step=step) as folder:
            (pathlib.Path(folder) / "state.json").write_text(json.dumps([step, digest]))
    if stop and run.should_stop():
        sys.exit()
if run.rank == 0:
    (pathlib.Path(run.output_dir) / "model.json").write_text(json.dumps([total, digest]))
"""
STEPS = 8


def chain(rates: list[tuple[str, int]]) -> str:
    """The digest after steps with these rates, each up to a step."""
    digest, done = "", 0
    for rate, last in rates:
        for step in range(done + 1, last + 1):
            digest = hashlib.sha256(f"{digest} {rate} {step}".encode()).hexdigest()
        done = last
    return digest


def document(name: str, *, ranks: int = 1, **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "job": {
            "training_config": {
                "framework": {"type": "CUSTOM", "custom_script_path": "halts.py"},
                "hyperparameters": {"max_steps": str(STEPS)},
                "max_retries": 3,
            },
            "resource_config": {"gpu_count": ranks, "device_type": "cpu"},
        },
        "parameters": {"rate": {"type": "int", "min": 1, "max": 9}},
        "objective": {"metric": "eval_loss", "goal": "minimize", "select": "last"},
        "method": {"name": "random", "seed": 3},
        "budget": {"max_trials": 5, "parallel_trials": 2},
        **changes,
    }


def created(system: System, sweep: dict[str, Any], script: str = SCRIPT) -> str:
    (system.inputs / "halts.py").write_text(script)
    sweep["job"]["training_config"]["framework"]["custom_script_path"] = str(system.inputs / "halts.py")
    status, body = system.call("POST", "/v1/sweeps", sweep)
    assert status == 201, body
    assert body["data"]["warnings"] == []
    return str(body["data"]["sweep_id"])


def trials(system: System, sweep_id: str) -> list[dict[str, Any]]:
    return list(system.get(f"/v1/sweeps/{sweep_id}/trials?page_size=100")["trials"])


def job_of(system: System, sweep_id: str, number: int) -> str:
    """The job of a trial, once it is made."""
    made = wait_for(lambda: trials(system, sweep_id)[number:], seconds=60, what=f"trial {number}")
    return str(made[0]["job_id"])


def ended(system: System, sweep_id: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        sweep = dict(system.get(f"/v1/sweeps/{sweep_id}"))
        return sweep if sweep["status"] in ("COMPLETED", "FAILED", "CANCELLED") else None

    return wait_for(look, seconds=120, what=f"{sweep_id} to end")


def steps_of(system: System, job_id: str) -> list[int]:
    return [int(step) for line in system.log_lines(job_id) for step in re.findall(r"^step (\d+)$", line)]


def model_of(system: System, job_id: str) -> list[Any]:
    return list(json.loads(system.download(f"/v1/jobs/{job_id}/artifacts/model.json")))


@pytest.mark.parametrize("ranks", [1, 2])
def test_trials_of_a_script_halt_at_rungs_and_winners_resume_there(shared_system: System, ranks: int) -> None:
    rule = {"name": "asha", "min": 2, "max": STEPS, "reduction": 2, "losers": "pause"}
    sweep_id = created(shared_system, document(f"asha-{ranks}", ranks=ranks, early_stopping=rule))

    sweep = ended(shared_system, sweep_id)

    found = trials(shared_system, sweep_id)
    states = {trial["number"]: trial["state"] for trial in found}
    assert (sweep["status"], set(states.values())) == ("COMPLETED", {"COMPLETED", "STOPPED"}), found
    for trial in found:
        last = STEPS if trial["state"] == "COMPLETED" else trial["reports"][-1]["rung"]
        assert steps_of(shared_system, trial["job_id"]) == list(range(1, last + 1))
        assert [report["rung"] for report in trial["reports"]] == [rung for rung in (2, 4, 8) if rung <= last]
        if trial["state"] == "COMPLETED":
            rate = str(trial["values"]["rate"])
            assert model_of(shared_system, trial["job_id"]) == [STEPS, chain([(rate, STEPS)])]
            assert shared_system.job(trial["job_id"])["attempt"] == 3
    assert shared_system.get(f"/v1/sweeps/{sweep_id}/replay")["is_equal"] is True


def test_a_rank_that_is_killed_costs_no_halt(shared_system: System) -> None:
    rule = {"name": "asha", "min": 2, "max": STEPS, "reduction": 2, "losers": "pause"}
    waits = '    while step == 1 and os.environ["TRAINYARD_ATTEMPT"] == "1":\n        time.sleep(0.05)\n'
    script = "import os\n" + SCRIPT.replace("    stop = ", f"{waits}    stop = ")
    budget = {"max_trials": 2, "parallel_trials": 1}
    sweep_id = created(shared_system, document("killed", ranks=2, early_stopping=rule, budget=budget), script)
    for number in range(2):
        job_id = job_of(shared_system, sweep_id, number)
        shared_system.wait_for_step(job_id, 1)
        shared_system.ranks_of(job_id)[-1].kill()

    ended(shared_system, sweep_id)

    found = trials(shared_system, sweep_id)
    assert sorted(trial["state"] for trial in found) == ["COMPLETED", "STOPPED"], found
    (winner,) = [trial for trial in found if trial["state"] == "COMPLETED"]
    assert model_of(shared_system, winner["job_id"]) == [STEPS, chain([(str(winner["values"]["rate"]), STEPS)])]
    assert shared_system.job(winner["job_id"])["attempt"] == 4
    assert [trial["reports"][0]["rung"] for trial in found] == [2, 2]
    assert shared_system.get(f"/v1/sweeps/{sweep_id}/replay")["is_equal"] is True


def test_a_fork_of_a_script_begins_with_its_winners_checkpoint(shared_system: System) -> None:
    method = {"name": "pbt", "population": 3, "interval": 4, "seed": 1}
    sweep_id = created(shared_system, document("population", method=method))

    ended(shared_system, sweep_id)

    found = {trial["number"]: trial for trial in trials(shared_system, sweep_id)}
    (fork,) = [trial for trial in found.values() if trial["forked_from"] is not None]
    winner = found[fork["forked_from"]]
    assert sorted(trial["state"] for trial in found.values()) == ["COMPLETED"] * 3 + ["EXPLOITED"]
    own, others = str(fork["values"]["rate"]), str(winner["values"]["rate"])
    assert model_of(shared_system, fork["job_id"]) == [STEPS, chain([(others, 4), (own, STEPS)])]
    assert steps_of(shared_system, fork["job_id"]) == [5, 6, 7, 8]
    assert model_of(shared_system, winner["job_id"]) == [STEPS, chain([(others, STEPS)])]
    assert shared_system.get(f"/v1/sweeps/{sweep_id}/replay")["is_equal"] is True


def test_none_is_left_running_5_seconds_after_a_cancel(shared_system: System) -> None:
    budget = {"max_trials": 9, "parallel_trials": 2}
    endless = SCRIPT.replace("time.sleep(0.05)", "time.sleep(0.05 if step == 1 else 600)")
    sweep_id = created(shared_system, document("cancelled", budget=budget), endless)
    jobs = [job_of(shared_system, sweep_id, number) for number in range(2)]
    for job_id in jobs:
        shared_system.wait_for_step(job_id, 1)
    ranks = [rank for job_id in jobs for rank in shared_system.ranks_of(job_id)]

    status, _ = shared_system.call("POST", f"/v1/sweeps/{sweep_id}/cancel")
    answered = time.monotonic()
    _, alive = psutil.wait_procs(ranks, timeout=30)
    seconds = time.monotonic() - answered

    assert (status, len(ranks), alive) == (200, 2, [])
    assert seconds <= 5.0
    sweep = ended(shared_system, sweep_id)
    assert (sweep["status"], sweep["trials"]) == ("CANCELLED", 2)
    assert {trial["state"] for trial in trials(shared_system, sweep_id)} == {"CANCELLED"}


def test_a_script_that_knows_nothing_of_halts_fails_its_sweep_at_once(shared_system: System) -> None:
    rule = {"name": "asha", "min": 2, "max": STEPS, "reduction": 2, "losers": "pause"}
    sweep_id = created(
        shared_system,
        document("ignorant", early_stopping=rule, budget={"max_trials": 5, "parallel_trials": 1}),
        SCRIPT.replace("    stop = run.should_stop(step=step)\n", "    stop = False\n"),
    )

    sweep = ended(shared_system, sweep_id)

    assert sweep["status"] == "FAILED"
    assert "INVALID_CONFIG" in sweep["status_reason"]
    first = shared_system.job(trials(shared_system, sweep_id)[0]["job_id"])
    assert "call run.should_stop(step=…)" in first["error_message"]
