"""With load_best_model_at_end the exported weights are those of the best evaluation, also after a resume."""

from typing import Any

import pytest
from safetensors.torch import load_file

from tests.trainers.in_process import Outcome, plan_of, runs
from workers.trainers.bitwise import bitwise_equal

pytestmark = pytest.mark.long

EVERY = 3
STEPS = 15
# A rate that rises until it makes the model worse than it was; an adapter's gets only better, so call the highest loss
# the best.
METHODS = {"sft": ("SFT", "0.5", {}), "lora": ("LORA", "1e-2", {"greater_is_better": True})}
BEST = {"sft": min, "lora": max}
WEIGHTS = {"sft": "model.safetensors", "lora": "adapter_model.safetensors"}


@pytest.fixture(scope="module")
def outcomes(assets, tmp_path_factory) -> dict[str, Outcome]:
    """For each method a whole run, and one that is stopped after its best evaluation and resumed."""
    directory = tmp_path_factory.mktemp("best")
    plans: dict[str, Any] = {}
    for method, (training_type, rate, rule) in METHODS.items():
        values = {
            "learning_rate": rate,
            "max_steps": str(STEPS),
            "lr_scheduler_type": "constant_with_warmup",
            "warmup_steps": str(STEPS),
            "load_best_model_at_end": "true",
        }
        for part in ("whole", "paused", "resumed"):
            plans[f"{method} {part}"] = plan_of(
                directory / f"{method}-{part}",
                assets,
                training_type,
                values,
                training_config={"evaluation": {"strategy": "steps", "steps": EVERY}},
                output_config={"checkpoint": {"save_steps": EVERY if part == "whole" else 100, **rule}},
            )
        plans[f"{method} paused"]["stop_at"] = STEPS - 1
        plans[f"{method} resumed"]["resume_from"] = f"{method} paused"
    return runs(directory, plans)


@pytest.mark.timeout(300)  # the first one waits for all the runs
@pytest.mark.parametrize("method", METHODS)
def test_weights_of_the_best_evaluation_are_exported(outcomes, method):
    whole = outcomes[f"{method} whole"]
    losses = whole.series("eval_loss")
    best = BEST[method](losses, key=lambda step: losses[step])
    (checkpoint,) = [path for path in whole.checkpoints if path.endswith(f"-{best}")]

    assert best < STEPS
    assert whole.result["final_metrics"]["eval_loss"] == losses[best]
    assert _alike(whole.output / WEIGHTS[method], f"{checkpoint}/{WEIGHTS[method]}")


@pytest.mark.parametrize("method", METHODS)
def test_resumed_run_remembers_the_best_weights(outcomes, method):
    whole, resumed = outcomes[f"{method} whole"], outcomes[f"{method} resumed"]

    assert list(resumed.series("eval_loss")) == [STEPS]
    assert resumed.result["final_metrics"]["eval_loss"] == whole.result["final_metrics"]["eval_loss"]
    assert _alike(resumed.output / WEIGHTS[method], whole.output / WEIGHTS[method])


def _alike(left, right):
    ours, others = load_file(left), load_file(right)
    return ours.keys() == others.keys() and all(bitwise_equal(tensor, others[name]) for name, tensor in ours.items())
