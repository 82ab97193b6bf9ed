"""Trainings by a grader that asks a service: the job asks through the real gateway, with its own token."""

import shutil
from collections.abc import Callable
from typing import Any

import pytest

from tests.systems.forked_agents import ForkedAgents
from tests.systems.system import System, wait_for
from tests.systems.with_gateway import gateway_of, requests_counted

pytestmark = pytest.mark.long
STEPS, COMPLETIONS = 2, 4


def graded(system: System, model: str) -> dict[str, Any]:
    """A training whose grader asks this model for a label, and Python for a length."""
    question = "Is this polite?\n{{sample.output_text}}"
    label = {"type": "label_model", "model": model, "labels": ["yes", "no"], "passing_labels": ["yes"]}
    graders = {
        "polite": {**label, "input": [{"role": "user", "content": question}]},
        "short": {"type": "python", "source": "def grade(sample, item):\n    return len(sample['output_text']) < 20"},
    }
    return {
        "name": "graded",
        "training_config": {
            "training_type": "RLHF",
            "base_model": {"model_id": str(system.inputs / "judge")},
            "framework": {"type": "HF_TRAINER"},
            "hyperparameters": {"max_steps": str(STEPS), "num_generations": "4", "max_completion_length": "8"},
            "grader": {"type": "multi", "graders": graders, "calculate_output": "(polite + short) / 2"},
            "max_retries": 0,
        },
        "data_config": {
            "sources": [{"path": str(system.inputs / "train.jsonl"), "format": "jsonl", "split": "train[:40]"}],
            "batch_size": COMPLETIONS,
            "max_seq_length": 96,
        },
        "resource_config": {"gpu_count": 1, "device_type": "cpu"},
    }


@pytest.mark.timeout(300)
def test_a_service_grades_the_completions_of_a_training(
    make_system: Callable[..., System], forked_agents: ForkedAgents, assets: dict[str, str]
) -> None:
    pytest.importorskip("llguidance")
    system = make_system()
    forked_agents.serve_system(system)
    shutil.copytree(assets["model"], system.inputs / "judge")
    shutil.copy(assets["train"], system.inputs / "train.jsonl")
    system.start("n1", "n2")
    service = {
        "name": "judge",
        "model": {"model_uri": str(system.inputs / "judge")},
        "replicas": {"min": 0, "max": 1, "idle_seconds": 300},
        "resource_config": {"gpu_count": 1, "device_type": "cpu"},
    }
    with gateway_of(system):
        assert system.call("POST", "/v1/services", service)[0] == 201
        status, answer = system.call("POST", "/v1/jobs", graded(system, "judge"))
        assert status == 201, answer
        job_id = answer["data"]["job_id"]
        system.wait_for_status(job_id, "COMPLETED", seconds=150)

        wait_for(lambda: requests_counted(system, "judge") == STEPS * COMPLETIONS, seconds=30, what="all are counted")
        _, answer = system.call("POST", "/v1/jobs", graded(system, "nothing"))
        failed = system.wait_for_status(answer["data"]["job_id"], "FAILED", seconds=100)

    found = system.get(f"/v1/jobs/{job_id}/metrics")["series"]
    series = {name: [point[2] for point in points] for name, points in found.items()}
    assert series["grader_errors"] == [0.0] * STEPS
    parts = zip(series["graders/polite"], series["graders/short"], strict=True)
    assert series["reward"] == pytest.approx([(polite + short) / 2 for polite, short in parts])
    assert failed["error_type"] == "INVALID_CONFIG"
    assert "the grader can't ask its model nothing: model: no model nothing" in failed["error_message"]
