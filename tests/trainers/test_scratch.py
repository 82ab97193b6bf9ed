"""Trainings from scratch: weights drawn by the seed, equal on all ranks and at every start, gone on from bit by bit."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.systems.once import once
from tests.trainers.in_process import Outcome, plan_of, shared_runs

DEFINITION = {
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "attention_dropout": 0.1,
}
STEPS, STOP = 12, 5


@pytest.fixture(scope="module", params=[1, pytest.param(2, marks=pytest.mark.long)], ids=["1-rank", "2-ranks"])
def outcomes(request, assets, run_directory) -> dict[str, Outcome]:
    """A whole run, and the same in two parts."""
    directory = run_directory / f"scratch-{request.param}"
    names = ("whole", "first", "second")
    plans = {name: _plan(directory / name, assets, world_size=request.param) for name in names}
    plans["first"]["stop_at"] = STOP
    plans["second"]["resume_from"] = "first"
    return shared_runs(directory, plans, world_size=request.param)


@pytest.fixture(scope="module")
def others(assets, run_directory) -> dict[str, Outcome]:
    """Short runs that begin otherwise, in one process."""
    directory = run_directory / "scratch-others"
    small = {"model_type": "gpt2", "n_embd": 32, "n_layer": 1, "n_head": 2}
    data = {"sources": [{"split": "train[:60]"}, {"split": "validation[60:72]"}]}
    changes: dict[str, dict[str, Any]] = {
        "seed 42": {},
        "other seed": {"data_config": {**data, "seed": 7}},
        "sft": {"kind": "SFT", "definition": small},
        "of directory": {
            "definition": True,
            "model_path": str(once(run_directory / "bare", lambda bare: _copy_bare(assets, bare))),
        },
        "impossible": {"definition": {**DEFINITION, "num_attention_heads": 5}},
        "unknown": {"definition": {"model_type": "perceptron"}},
    }
    plans = {name: _plan(directory / name, assets, steps=2, **each) for name, each in changes.items()}
    return shared_runs(directory, plans)


def _plan(
    run_dir: Path,
    assets: Path,
    *,
    kind: str = "CONTINUED_PRETRAIN",
    definition: Any = DEFINITION,
    steps: int = STEPS,
    **changes: Any,
) -> dict[str, Any]:
    training = {"base_model": {"model_id": "none", "from_config": definition}}
    values = {"max_steps": str(steps), "warmup_steps": "1"}
    spec = {"model_path": "", "tokenizer_path": str(assets / "model"), "training_config": training, **changes}
    return plan_of(run_dir, assets, kind, values, **spec)


def _copy_bare(assets: Path, bare: Path) -> None:
    """The demo's model without its weights."""
    shutil.copytree(assets / "model", bare, ignore=shutil.ignore_patterns("*.safetensors"))


def test_stopped_training_from_scratch_goes_on_bit_by_bit(outcomes):
    whole, first, second = (outcomes[name] for name in ("whole", "first", "second"))

    assert (whole.error, first.error, second.error) == (None, None, None)
    assert first.result["stopped"] == "pause"
    assert first.series("loss") | second.series("loss") == whole.series("loss")
    assert second.weights() == whole.weights()


def test_loss_falls_from_that_of_a_model_that_knows_nothing(outcomes, assets):
    losses = outcomes["whole"].series("loss")

    tokens = len(AutoTokenizer.from_pretrained(assets / "model"))
    assert losses[1] == pytest.approx(math.log(tokens), rel=0.02)  # as if all were equally likely
    assert losses[STEPS] < losses[1] - 0.5


def test_drawn_model_is_as_defined_and_says_so(outcomes, assets):
    output = outcomes["whole"].output
    model = AutoModelForCausalLM.from_pretrained(output)

    assert (model.config.model_type, model.config.hidden_size) == ("llama", 32)
    assert model.config.vocab_size == len(AutoTokenizer.from_pretrained(assets / "model"))
    assert "trained from scratch" in (output / "README.md").read_text()
    assert "weights drawn by the seed 42" in (output / "README.md").read_text()


def test_seed_decides_the_first_loss(others):
    assert others["other seed"].series("loss")[1] != others["seed 42"].series("loss")[1]


def test_configuration_of_a_directory_without_weights_is_trained(others):
    assert others["of directory"].error is None
    config = json.loads((others["of directory"].output / "config.json").read_text())
    assert config["hidden_size"] != DEFINITION["hidden_size"]


def test_another_family_learns_from_examples(others):
    assert others["sft"].error is None
    assert json.loads((others["sft"].output / "config.json").read_text())["model_type"] == "gpt2"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("impossible", "not a multiple of the number of attention heads"),
        ("unknown", "no causal language model of type 'perceptron'"),
    ],
)
def test_what_is_no_definition_is_refused(others, name, why):
    assert others[name].error.startswith("INVALID_CONFIG: from_config")
    assert why in others[name].error
