"""Evaluations that a real training plans, through the real system: jobs, results, curves, a comparison."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.systems.forked_agents import ForkedAgents
from tests.systems.system import System


def training_job(assets: dict[str, str], records: str) -> dict[str, Any]:
    loss = {"name": "loss", "dataset": records}
    return {
        "name": "measured",
        "training_config": {
            "training_type": "SFT",
            "base_model": {"model_id": assets["model"]},
            "framework": {"type": "HF_TRAINER"},
            "hyperparameters": {"max_steps": "20", "learning_rate": "8e-3"},
            "evaluation": {"strategy": "steps", "steps": 10},
            "evaluations": [
                {"on": "checkpoint", "benchmarks": [loss]},
                {"on": "end", "benchmarks": [loss, {"name": "json_valid", "dataset": records, "num_samples": 4}]},
            ],
        },
        "data_config": {
            "sources": [{"path": assets["train"]}, {"path": records, "split": "validation"}],
            "max_seq_length": 64,
            "batch_size": 4,
        },
        "resource_config": {"gpu_count": 1, "device_type": "cpu"},
        "output_config": {"checkpoint": {"save_steps": 10}},
    }


@pytest.mark.long
@pytest.mark.timeout(400)
def test_checkpoints_and_the_result_are_measured_as_the_training_measures_itself(
    make_system: Callable[..., System], forked_agents: ForkedAgents, assets: dict[str, str], tmp_path: Path
) -> None:
    records = tmp_path / "records.jsonl"
    with Path(assets["train"]).open() as lines:
        records.write_text("".join(line for _, line in zip(range(12), lines, strict=False)))
    roots = f"{Path(assets['model']).parent}:{tmp_path}"
    system = make_system(TRAINYARD_STORAGE_ROOTS=roots).start("n1")
    forked_agents.serve_system(system)

    job_id = system.submit(training_job(assets, str(records)))
    system.wait_for_status(job_id, "COMPLETED", seconds=240)
    made = system.get(f"/v1/evaluations?job_id={job_id}&order_by=created_at")["evaluations"]
    for evaluation in made:
        system.wait_for_status(evaluation["evaluation_id"], "COMPLETED", seconds=240)

    assert [each["step"] for each in made] == [10, 20, None]
    series = system.get(f"/v1/jobs/{job_id}/metrics?names=eval_loss&names=bench/loss/loss")["series"]
    measured = {point[0]: point[2] for point in series["bench/loss/loss"]}
    assert measured == pytest.approx({point[0]: point[2] for point in series["eval_loss"] if point[0] in (10, 20)})
    first, last = made[0]["evaluation_id"], made[2]["evaluation_id"]
    results = system.get(f"/v1/evaluations/{last}")["results"]
    assert (results["loss"]["n"], results["json_valid"]["n"]) == (12, 4)
    kept = system.download(f"/v1/jobs/{last}/artifacts/samples-loss.jsonl").splitlines()
    assert [json.loads(line)["index"] for line in kept] == list(range(12))
    _, answer = system.call("POST", "/v1/evaluations/compare", {"ids": [first, last]})
    compared = answer["data"]["comparisons"]
    (difference,) = compared[0]["differences"]
    assert (difference["n"], compared[0]["notes"]) == (12, [])
    assert difference["difference"] == pytest.approx(measured[20] - measured[10], rel=1e-3)
