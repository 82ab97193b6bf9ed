"""Training with FSDP: the model really is divided, and every resume is exact."""

import random
from typing import Any

import pytest

from tests.trainers.in_process import Outcome, plan_of, runs

STEPS = 14
METHODS: dict[str, tuple[str, dict[str, str], dict[str, Any]]] = {
    "sft": ("SFT", {"group_by_length": "true", "gradient_checkpointing": "true"}, {}),
    "lora": ("LORA", {"lora_dropout": "0.1", "modules_to_save": "embed_tokens"}, {}),
    "packed": ("FULL_FINETUNE", {"packing": "true"}, {}),
    "pretrain": ("CONTINUED_PRETRAIN", {}, {}),
}
SERIES = ("loss", "learning_rate", "grad_norm", "mean_token_accuracy", "eval_loss")


@pytest.fixture(scope="module")
def outcomes(assets, tmp_path_factory) -> dict[str, Outcome]:
    draw = random.Random(7)
    directory = tmp_path_factory.mktemp("fsdp")
    plans: dict[str, Any] = {}
    for method, (training_type, hyperparameters, changes) in METHODS.items():
        values = {"max_steps": str(STEPS), "warmup_steps": "3", **hyperparameters}
        before = None
        stops = sorted(draw.sample(range(1, STEPS), 3))
        for name in ("whole", *stops, "end"):
            run = f"{method}-{name}"
            plans[run] = plan_of(
                directory / run, assets, training_type, values, world_size=2, framework="FSDP", **changes
            )
            if name != "whole":
                plans[run] |= {"stop_at": name if name in stops else None, "resume_from": before}
                before = run
    return runs(directory, plans, world_size=2)


@pytest.mark.timeout(300)  # the first one waits for all the runs
@pytest.mark.parametrize("method", METHODS)
def test_stopped_run_goes_on_bit_by_bit(outcomes, method):
    whole = outcomes[f"{method}-whole"]
    parts = [outcome for name, outcome in outcomes.items() if name.startswith(f"{method}-") and outcome is not whole]

    assert [part.result["stopped"] for part in parts] == ["pause", "pause", "pause", None]
    for name in SERIES:
        assert {step: value for part in parts for step, value in part.series(name).items()} == whole.series(name), name
    assert parts[-1].weights() == whole.weights()
