"""On a GPU, with deterministic kernels, a stopped and resumed run gives the same bits as an uninterrupted one."""

from pathlib import Path
from typing import Any

import pytest

from tests.trainers.in_process import Outcome, plan_of, runs

pytestmark = pytest.mark.gpu

STEPS, STOPS = 14, (3, 9)


def in_precision(dtype: str) -> dict[str, Any]:
    return {"training_config": {"base_model": {"dtype": dtype}, "evaluation": {"strategy": "epoch"}}}


# What each method runs with: training type, hyperparameters, changes of the document.
METHODS: dict[str, tuple[str, dict[str, str], dict[str, Any]]] = {
    "sft": ("SFT", {"group_by_length": "true"}, {}),
    "float32": ("SFT", {}, in_precision("float32")),
    "float16": ("FULL_FINETUNE", {"gradient_checkpointing": "true"}, in_precision("float16")),
    "lora": ("LORA", {"lora_dropout": "0.1"}, in_precision("bfloat16")),
    "qlora": ("QLORA", {"lora_dropout": "0.1"}, in_precision("bfloat16")),
    "grpo": ("RLHF", {"reward": "regex:[aeiou]{2}", "num_generations": "4", "max_completion_length": "9"}, {}),
    "packed": ("FULL_FINETUNE", {"packing": "true", "neftune_noise_alpha": "5"}, {}),
    "pretrain": ("CONTINUED_PRETRAIN", {"lr_scheduler_type": "cosine"}, {}),
}


@pytest.fixture(scope="module")
def outcomes(with_dropout: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """For each method the whole run, and a chain of runs that ends at two steps and then at the last."""
    directory = tmp_path_factory.mktemp("exact")
    plans: dict[str, Any] = {}
    for method, (training_type, hyperparameters, changes) in METHODS.items():
        values = {"max_steps": str(STEPS), "warmup_steps": "3", "full_determinism": "true", **hyperparameters}
        before = None
        for stop in (None, *STOPS, STEPS):
            run = f"{method}-{'whole' if stop is None else stop}"
            plans[run] = plan_of(directory / run, with_dropout, training_type, values, device_type="cuda", **changes)
            if stop is not None:
                plans[run] |= {"stop_at": stop if stop in STOPS else None, "resume_from": before}
                before = run
    return runs(directory, plans)


@pytest.mark.parametrize("method", METHODS)
def test_stopped_run_goes_on_bit_by_bit(outcomes: dict[str, Outcome], method: str) -> None:
    whole = outcomes[f"{method}-whole"]
    parts = [outcomes[f"{method}-{stop}"] for stop in (*STOPS, STEPS)]

    assert [part.error for part in (whole, *parts)] == [None] * 4
    assert [part.result["stopped"] for part in parts] == ["pause", "pause", None]
    for name in ("loss", "learning_rate", "grad_norm", "eval_loss"):
        assert {step: value for part in parts for step, value in part.series(name).items()} == whole.series(name), name
    assert list(whole.series("loss")) == list(range(1, STEPS + 1))
    assert parts[-1].weights() == whole.weights()
