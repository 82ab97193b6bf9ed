"""The loss of an evaluation is the one that the training of the model has measured, to the last bit."""

from pathlib import Path
from typing import Any

import pytest

from tests.trainers.evaluations import evaluate, mean_of_batches
from tests.trainers.in_process import Outcome, plan_of, shared_runs

# By name: training type, changes of the plan, and what the evaluation says of its records.
RUNS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "completions": ("SFT", {}, {}),
    "chat": ("SFT", {"files": ("chat.jsonl", "chat.jsonl")}, {}),
    "text": ("CONTINUED_PRETRAIN", {}, {"records_as": "CONTINUED_PRETRAIN"}),
    "adapter": ("LORA", {}, {}),
}


def plan(directory: Path, assets: Path, name: str) -> dict[str, Any]:
    training_type, changes, _ = RUNS[name]
    files = changes.get("files")
    more: dict[str, Any] = {"data_paths": [str(assets / each) for each in files]} if files else {}
    found = plan_of(directory / name, assets, training_type, {"max_steps": "1"}, **more)
    if files:
        found["spec"]["data_config"]["sources"] = [{"split": "train[:40]"}, {"split": "validation[40:53]"}]
    return found


@pytest.fixture(scope="module")
def trained(run_directory: Path, assets: Path) -> dict[str, tuple[dict[str, Any], Outcome]]:
    directory = run_directory / "evaluated-losses"
    plans = {name: plan(directory, assets, name) for name in RUNS}
    outcomes = shared_runs(directory, plans)
    return {name: (plans[name]["spec"], outcomes[name]) for name in RUNS}


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # by peft
@pytest.mark.parametrize("name", RUNS)
def test_the_loss_is_that_of_the_training(tmp_path: Path, trained: Any, assets: Path, name: str) -> None:
    spec, outcome = trained[name]
    is_adapter = name == "adapter"
    parameters = {"batch_size": 4, **RUNS[name][2]}

    found = evaluate(
        tmp_path,
        benchmarks=[{"name": each, "dataset": 0, "parameters": parameters} for each in ("loss", "perplexity")],
        data_paths=(spec["data_paths"][1],),
        data_config={"sources": [spec["data_config"]["sources"][1]], "max_seq_length": 48},
        model_path=str(assets / "model"),
        weights_path=outcome.result["output"],
        inference={"model": {"job_id": "job-1", "adapter": is_adapter}},
    )

    expected = outcome.result["final_metrics"]["eval_loss"]
    assert found.value("loss", "loss") == expected
    assert mean_of_batches(found, 4) == pytest.approx(expected, rel=1e-6)
    if name == "text":
        assert found.value("perplexity", "perplexity") == outcome.result["final_metrics"]["eval_perplexity"]
