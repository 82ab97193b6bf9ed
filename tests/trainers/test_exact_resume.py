"""A run stopped at random steps and resumed gives the same bits as an uninterrupted one, whatever the method."""

import os
import random
from pathlib import Path
from typing import Any

import pytest

from tests.trainers.in_process import plan_of, runs

pytestmark = pytest.mark.long

FRAMEWORK = "HF_TRAINER"
STEPS = 10  # an epoch has 8, the last one half full

RLHF = {"reward": "regex:[aeiou]{2}", "num_generations": "4", "max_completion_length": "9"}
# What each method runs with: training type, hyperparameters, changes of the document.
METHODS: dict[str, tuple[str, dict[str, str], dict[str, Any]]] = {
    "sft": ("SFT", {"group_by_length": "true"}, {}),
    "lora": (
        "LORA",
        {"lora_dropout": "0.1", "modules_to_save": "embed_tokens"},
        {"training_config": {"base_model": {"dtype": "bfloat16"}, "evaluation": {"strategy": "epoch"}}},
    ),
    "qlora": ("QLORA", {"lora_dropout": "0.1", "modules_to_save": "lm_head"}, {}),
    "dpo": ("DPO", {"disable_dropout": "false", "group_by_length": "true", "load_best_model_at_end": "true"}, {}),
    "dpo_lora": (
        "DPO",
        {"use_lora": "true", "lora_dropout": "0.1", "disable_dropout": "false", "modules_to_save": "embed_tokens"},
        {
            "output_config": {"checkpoint": {"save_steps": 100}, "merge_lora": True},
            "adjustments": {"batch_halvings": 1},
        },
    ),
    "grpo": ("RLHF", {**RLHF, "disable_dropout": "false", "load_best_model_at_end": "true"}, {}),
    "grpo_lora": (
        "RLHF",
        {**RLHF, "use_lora": "true", "lora_dropout": "0.1", "modules_to_save": "lm_head", "scale_rewards": "batch"},
        {"adjustments": {"batch_halvings": 1}},
    ),
    "rloo": (
        "RLHF",
        {**RLHF, "algorithm": "rloo", "reward": "exact:completion", "temperature": "1.3", "top_k": "9"},
        {},
    ),
    "reward": ("RLHF", {"algorithm": "reward", "disable_dropout": "false", "load_best_model_at_end": "true"}, {}),
    "reward_lora": (
        "RLHF",
        {"algorithm": "reward", "use_lora": "true", "lora_dropout": "0.1", "center_rewards_coefficient": "0.01"},
        {"adjustments": {"batch_halvings": 1}},
    ),
    "packed": ("FULL_FINETUNE", {"packing": "true", "neftune_noise_alpha": "5"}, {}),
    "pretrain": ("CONTINUED_PRETRAIN", {"lr_scheduler_type": "warmup_stable_decay"}, {}),
    "streamed": ("SFT", {"load_best_model_at_end": "true"}, {"data_config": {"streaming": True, "shuffle_buffer": 16}}),
    "halved": ("LORA", {"lr_scheduler_type": "cosine"}, {"adjustments": {"batch_halvings": 1}}),
}
SERIES = (
    "loss",
    "learning_rate",
    "grad_norm",
    "mean_token_accuracy",
    "rewards/margins",
    "reward",
    "kl",
    "margin",
    "eval_loss",
)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("ranks", [1, 2], ids=["1-rank", "2-ranks"])
@pytest.mark.parametrize("method", METHODS)
def test_stopped_run_goes_on_bit_by_bit(method, ranks, assets, tmp_path, record_seconds):
    """A whole run, and a chain of runs that ends at three random steps and then at the last."""
    outcomes = runs(tmp_path, _plans(tmp_path, assets, method, ranks), world_size=ranks, timeout_seconds=280)
    whole, *parts = outcomes.values()
    record_seconds([whole, *parts])

    assert [part.result["stopped"] for part in parts] == ["pause", "pause", "pause", None]
    assert list(whole.series("loss")) == list(range(1, STEPS + 1))
    for name in SERIES:
        assert {step: value for part in parts for step, value in part.series(name).items()} == whole.series(name), name
    assert parts[-1].weights() == whole.weights()
    assert parts[-1].result["tokens"] == whole.result["tokens"] > 0
    assert parts[-1].result["final_metrics"]["train_loss"] == whole.result["final_metrics"]["train_loss"]


def _plans(directory: Path, assets: Path, method: str, ranks: int) -> dict[str, Any]:
    seed = int(os.environ.get("TRAINYARD_TEST_SEED") or random.randrange(1_000_000))
    draw = random.Random(f"{seed}/{method}/{ranks}")
    training_type, hyperparameters, changes = METHODS[method]
    values = {"max_steps": str(STEPS), "warmup_steps": "3", **hyperparameters}
    stops = sorted(draw.sample(range(1, STEPS), 3))
    print(f"TRAINYARD_TEST_SEED={seed}: {method} on {ranks} ranks stops at {stops}")  # noqa: T201  (shown when it fails)
    plans: dict[str, Any] = {}
    before = None
    for name in ("whole", *stops, "end"):
        run = str(name)
        plans[run] = plan_of(directory / run, assets, training_type, values, world_size=ranks, **changes)
        if name != "whole":
            stop = name if name in stops else None
            # The request comes just before a step's end, or between its forward passes.
            within = stop if draw.random() < 0.5 else None
            plans[run] |= {"stop_at": stop, "pause_within": within, "resume_from": before}
            before = run
    return plans
