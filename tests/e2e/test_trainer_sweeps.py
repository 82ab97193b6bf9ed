"""Sweeps over a built-in trainer, through a real system: trunks with their proof, halts at rungs, and a population."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_script_sweeps import ended, trials
from tests.systems.forked_agents import ForkedAgents
from tests.systems.system import System

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]

STEPS = 12


@pytest.fixture
def system(shared_system: System, forked_agents: ForkedAgents, assets: dict[str, str]) -> System:
    """The shared one, with the demo's model and data where its jobs may read."""
    forked_agents.serve_system(shared_system)
    if not (model := shared_system.inputs / "trained-model").exists():
        shutil.copytree(assets["model"], model)
        lines = Path(assets["train"]).read_text().splitlines(keepends=True)
        (shared_system.inputs / "trained.jsonl").write_text("".join(lines[:200]))
    return shared_system


def swept(system: System, name: str, *, every: int = 4, **changes: Any) -> tuple[str, dict[int, dict[str, Any]]]:
    """The id of a sweep that has completed, and its trials by number; those evaluate at ``every`` so many steps."""
    document: dict[str, Any] = {
        "name": name,
        "job": {
            "training_config": {
                "training_type": "SFT",
                "base_model": {"model_id": str(system.inputs / "trained-model")},
                "framework": {"type": "HF_TRAINER"},
                "hyperparameters": {"max_steps": str(STEPS), "logging_steps": "1"},
                "evaluation": {"strategy": "steps", "steps": every},
            },
            "data_config": {
                "sources": [{"path": str(system.inputs / "trained.jsonl"), "format": "jsonl"}],
                "validation_split": 0.05,
                "max_seq_length": 32,
                "batch_size": 2,
            },
            "resource_config": {"gpu_count": 1, "device_type": "cpu"},
        },
        "parameters": {"learning_rate": {"type": "double", "min": 1e-4, "max": 1e-1, "scale": "log"}},
        "objective": {"metric": "eval_loss"},
        "method": {"name": "random", "seed": 3},
        "budget": {"max_trials": 4, "parallel_trials": 2},
        **changes,
    }
    document["job"]["training_config"]["hyperparameters"] |= document.pop("fixed", {})
    status, body = system.call("POST", "/v1/sweeps", document)
    assert (status, body["data"]["warnings"] if status == 201 else body) == (201, [])
    sweep_id = str(body["data"]["sweep_id"])
    sweep, found = ended(system, sweep_id), {trial["number"]: trial for trial in trials(system, sweep_id)}
    assert sweep["status"] == "COMPLETED", (sweep["status_reason"], found)
    assert system.get(f"/v1/sweeps/{sweep_id}/replay")["is_equal"] is True
    return sweep_id, found


def losses_of(system: System, job_id: str) -> dict[int, float]:
    points = system.get(f"/v1/jobs/{job_id}/metrics?names=loss")["series"]["loss"]
    return {int(step): float(value) for step, _, value in points}


def test_lengths_share_their_steps_and_end_with_the_weights_of_trainings_alone(system: System) -> None:
    lengths = [40, 32, 24, 16]
    sweep_id, found = swept(
        system,
        "lengths",
        every=8,
        fixed={"lr_scheduler_type": "warmup_stable_decay", "lr_decay_ratio": "0.2", "learning_rate": "8e-3"},
        parameters={"max_steps": {"type": "int", "values": lengths}},
        method={"name": "grid", "order": "natural"},
        share_trunks=True,
        verify_trunks=1,
    )

    forks = [trial for trial in found.values() if trial["forked_from"] is not None]
    trained = sum(trial["values"]["max_steps"] - trial["steps_saved"] for trial in found.values())
    assert (len(found), len(forks)) == (4, 3)
    assert trained <= 0.6 * sum(lengths), found
    for fork in forks:
        assert min(losses_of(system, fork["job_id"])) == fork["steps_saved"] + 1
    events = system.get(f"/v1/sweeps/{sweep_id}/events?page_size=100")["events"]
    (verified,) = [event for event in events if event["reason"] == "TRUNK_VERIFIED"]
    (begun,) = [event for event in events if event["reason"] == "VERIFIES"]
    alone, fork = begun["data"]["job_id"], found[verified["data"]["number"]]
    reports = [system.get(f"/v1/jobs/{job_id}/report") for job_id in (alone, fork["job_id"])]
    assert min(losses_of(system, alone)) == 1
    assert [(each["forked_from"], each["steps_saved"]) for each in reports] == [
        (None, 0),
        (fork["forked_from"], fork["steps_saved"]),
    ]
    assert reports[0]["model_hash"] == reports[1]["model_hash"] != ""


def test_a_trainer_halts_at_rungs_and_winners_train_on_from_there(system: System) -> None:
    rule = {"name": "asha", "min": 4, "max": STEPS, "reduction": 3, "losers": "pause"}
    sweep_id, found = swept(system, "halting", early_stopping=rule)

    completed = [trial for trial in found.values() if trial["state"] == "COMPLETED"]
    stopped = [trial for trial in found.values() if trial["state"] == "STOPPED"]
    assert completed
    assert len(completed) + len(stopped) == 4
    for trial in stopped:
        assert list(losses_of(system, trial["job_id"])) == [1, 2, 3, 4]
    for trial in completed:
        assert list(losses_of(system, trial["job_id"])) == list(range(1, STEPS + 1))
        assert system.job(trial["job_id"])["attempt"] == 2
    best = min(found.values(), key=lambda trial: trial["reports"][0]["value"])
    assert best["state"] == "COMPLETED"
    [shown] = system.get(f"/v1/sweeps/{sweep_id}/best")["trials"]
    assert shown["report"]["model_hash"] == system.get(f"/v1/jobs/{shown['job_id']}/report")["model_hash"] != ""
    assert set(shown["report"]["weight_files"]) <= {each["path"] for each in shown["artifacts"]}


def test_a_fork_of_a_population_begins_with_its_winners_weights(system: System) -> None:
    method = {"name": "pbt", "population": 2, "interval": 6, "seed": 1}
    _, found = swept(system, "population", every=6, method=method, budget={"max_trials": 3, "parallel_trials": 2})

    (fork,) = [trial for trial in found.values() if trial["forked_from"] is not None]
    winner = found[fork["forked_from"]]
    assert sorted(trial["state"] for trial in found.values()) == ["COMPLETED", "COMPLETED", "EXPLOITED"]
    assert fork["values"] != winner["values"]
    assert list(losses_of(system, fork["job_id"])) == list(range(7, STEPS + 1))
    assert list(losses_of(system, winner["job_id"])) == list(range(1, STEPS + 1))
    # The same weights and the same batch: the first loss is the one that the winner has there.
    assert losses_of(system, fork["job_id"])[7] == losses_of(system, winner["job_id"])[7]
