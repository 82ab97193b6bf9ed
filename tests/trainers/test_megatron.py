"""Real trainings with Megatron: what its ranks hold, the same losses as HF_TRAINER, and bit-exact resumes."""

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen2Config

from examples.generate import generate
from tests.trainers.in_process import SMALL as MODEL
from tests.trainers.in_process import Outcome, plan_of, runs, shared_runs
from tests.trainers.joined import check_equal, joined, weights_in
from tests.trainers.supervision import at_step
from tests.trainers.test_sft import PAUSE, train
from trainyard.protocol import checkpoint_manifest

FRAMEWORK = "MEGATRON"
TENSOR, PIPELINE = {"tensor_parallel": "2"}, {"pipeline_parallel": "2"}
STEPS = 10  # an epoch has 8, the last one half full
SERIES = ("loss", "learning_rate", "grad_norm", "mean_token_accuracy", "entropy", "eval_loss")
SMALL = {"max_steps": "4", "warmup_steps": "2"}
WIDE, INNER = MODEL["hidden_size"], MODEL["intermediate_size"]


def plan(run_dir, assets, options, *, ranks=2, dropout=0.1, training_type="SFT", framework=FRAMEWORK, **values):
    """A run that makes the same steps whatever its number of ranks; `values` are hyperparameters."""
    base: dict[str, Any] = {"model_kwargs": {"attention_dropout": dropout}}
    groups = ranks
    for parts in options.values():
        groups //= int(parts)
    return plan_of(
        run_dir,
        assets,
        training_type,
        {"max_steps": str(STEPS), "warmup_steps": "3", **values},
        world_size=ranks,
        framework=framework,
        training_config={"base_model": base, "framework": {"config": options}, "evaluation": {"strategy": "epoch"}},
        data_config={"batch_size": 4 // groups},
    )


def parts_of(plans, name) -> list[dict[str, list[int]]]:
    paths = sorted(Path(plans[name]["spec"]["run_dir"]).glob("parts-*.json"))
    return [json.loads(path.read_text()) for path in paths]


@pytest.fixture(scope="module")
def pair(assets, run_directory):
    """Two ranks that share each layer, once without a stop and once with, and two that share the layers."""
    directory = run_directory / "megatron-pair"
    plans = {
        "whole": plan(directory / "whole", assets, TENSOR, **SMALL)
        | {"records_parts": True, "commands": {4: {"type": "checkpoint"}}},
        "paused": plan(directory / "paused", assets, TENSOR, **SMALL) | {"stop_at": 2},
        "resumed": plan(directory / "resumed", assets, TENSOR, **SMALL) | {"resume_from": "paused"},
        "stages": plan(directory / "stages", assets, PIPELINE, **SMALL)
        | {"records_parts": True, "commands": {4: {"type": "checkpoint"}}},
    }
    return plans, shared_runs(directory, plans, world_size=2)


@pytest.mark.long
def test_each_rank_has_half_of_every_layer(pair):
    parts = parts_of(pair[0], "whole")

    assert len(parts) == 2
    for part in parts:
        assert part["decoder.layers.1.self_attention.linear_qkv.weight"] == [3 * WIDE // 2, WIDE]
        assert part["decoder.layers.1.self_attention.linear_proj.weight"] == [WIDE, WIDE // 2]
        assert part["decoder.layers.1.mlp.linear_fc1.weight"] == [2 * INNER // 2, WIDE]
        assert part["decoder.layers.1.mlp.linear_fc2.weight"] == [WIDE, INNER // 2]


@pytest.mark.long
def test_each_stage_has_half_of_the_layers(pair):
    first, last = parts_of(pair[0], "stages")

    for part in (first, last):
        assert {name.split(".")[2] for name in part if name.startswith("decoder.layers.")} == {"0"}
        assert part["decoder.layers.0.mlp.linear_fc2.weight"] == [WIDE, INNER]
    assert "embedding.word_embeddings.weight" in first.keys() - last.keys()
    assert "decoder.final_layernorm.weight" in last.keys() - first.keys()


@pytest.mark.long
def test_a_paused_run_goes_on_bit_by_bit(pair):
    outcomes = pair[1]

    check_exact(outcomes["whole"], [outcomes["paused"], outcomes["resumed"]], 4)


@pytest.mark.long
def test_checkpoint_is_complete_and_the_model_loads_with_transformers_alone(pair):
    outcome = pair[1]["stages"]

    for path in outcome.checkpoints:
        assert {"metadata.json", "trainer_state.json", "tokenizer.json"} <= {
            entry.path for entry in checkpoint_manifest.verify(path).files
        }
    assert generate(str(outcome.output), "def f(x):", 8).startswith("def f(x):")
    assert {"model.safetensors", "config.json", "README.md"} <= {path.name for path in outcome.output.iterdir()}


@pytest.mark.long
@pytest.mark.parametrize("name", ["whole", "stages"])
def test_weights_of_a_checkpoint_are_put_together_bit_by_bit(pair, tmp_path, name):
    outcome = pair[1][name]

    found = joined(FRAMEWORK, outcome.checkpoints[-1], tmp_path)

    check_equal(weights_in(found), weights_in(outcome.output))
    AutoModelForCausalLM.from_pretrained(found)


def check_exact(whole: Outcome, parts: list[Outcome], steps: int) -> None:
    assert [part.result["stopped"] for part in parts] == ["pause"] * (len(parts) - 1) + [None]
    assert list(whole.series("loss")) == list(range(1, steps + 1))
    for name in SERIES:
        assert {step: value for part in parts for step, value in part.series(name).items()} == whole.series(name), name
    assert parts[-1].weights() == whole.weights()
    assert parts[-1].result["tokens"] == whole.result["tokens"] > 0


@pytest.fixture(scope="module")
def layouts(request, assets, tmp_path_factory):
    """The same job without dropout, with HF_TRAINER and divided in the ways asked for; one has a model with biases."""
    test = test_losses_are_those_of_hf_trainer_however_the_model_is_divided
    asked = {name for variant in asked_for(request, test) for name in compared(**variant)}
    directory = tmp_path_factory.mktemp("layouts")
    biased = directory / "biased"
    make_biased(biased, assets)
    ways: dict[int, dict[str, dict[str, Any]]] = {
        1: {"hf": {"framework": "HF_TRAINER", "options": {}}, "alone": {"options": {}}},
        2: {"tensor": {"options": TENSOR}, "pipeline": {"options": PIPELINE}, "data": {"options": {}}},
        4: {"all": {"options": TENSOR | PIPELINE}},
    }
    ways[1] |= {"hf biased": {"framework": "HF_TRAINER", "options": {}, "assets": biased}}
    ways[2] |= {
        "tensor biased": {"options": TENSOR, "assets": biased},
        "pipeline biased": {"options": PIPELINE, "assets": biased},
    }
    found: dict[str, Outcome] = {}
    for ranks, plans in ways.items():
        (directory / str(ranks)).mkdir()
        made = {
            name: plan(directory / name, dropout=0.0, ranks=ranks, **{"assets": assets, **way})
            for name, way in plans.items()
            if name in asked
        }
        found |= runs(directory / str(ranks), made, world_size=ranks) if made else {}
    return found


def asked_for(request: pytest.FixtureRequest, test: Callable[..., None]) -> list[dict[str, Any]]:
    """The variants of a test that this run has."""
    items = [item for item in request.session.items if isinstance(item, pytest.Function)]
    return [item.callspec.params for item in items if item.function is test]


def evaluated_as(name: str) -> str:
    """The layout whose evaluations are the same."""
    return name.replace("pipeline", "tensor")


def compared(name: str, theirs: str) -> set[str]:
    return {name, theirs, evaluated_as(name)}


def make_biased(directory: Path, assets: Path) -> None:
    """A Qwen2 whose heads share keys and values, with other biases than zero, and an odd number of tokens."""
    tokenizer = AutoTokenizer.from_pretrained(assets / "model")
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokenizer) + 1 - len(tokenizer) % 2,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        tie_word_embeddings=False,
    )
    model = AutoModelForCausalLM.from_config(config)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.1)
    model.save_pretrained(directory / "model")
    tokenizer.save_pretrained(directory / "model")
    for name in ("train.jsonl", "validation.jsonl"):
        (directory / name).write_bytes((assets / name).read_bytes())


@pytest.mark.long
@pytest.mark.timeout(400)  # the first one waits for all the runs
@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        *((name, "hf") for name in ("alone", "tensor", "pipeline", "data", "all")),
        *((name, "hf biased") for name in ("tensor biased", "pipeline biased")),
    ],
)
def test_losses_are_those_of_hf_trainer_however_the_model_is_divided(layouts, name, theirs):
    found, expected = layouts[name], layouts[theirs]

    for series, bound in (("loss", 1e-4), ("grad_norm", 1e-3), ("learning_rate", 0.0)):
        assert found.series(series) == pytest.approx(expected.series(series), abs=bound), series
    assert found.result["tokens"] == expected.result["tokens"]
    assert found.result["final_metrics"]["eval_loss"] == pytest.approx(
        layouts[evaluated_as(name)].result["final_metrics"]["eval_loss"], abs=1e-4
    )
    mine, other = (AutoModelForCausalLM.from_pretrained(each.output).state_dict() for each in (found, expected))
    assert mine.keys() == other.keys()
    assert max(float((mine[key] - other[key]).abs().max()) for key in mine) < 1e-3


# What each way to divide runs with: training type, hyperparameters, options.
METHODS: dict[str, tuple[str, dict[str, str], dict[str, str]]] = {
    "tensor": ("SFT", {"group_by_length": "true"}, TENSOR),
    "pipeline": ("CONTINUED_PRETRAIN", {"lr_scheduler_type": "warmup_stable_decay"}, PIPELINE),
    "data": ("FULL_FINETUNE", {"gradient_checkpointing": "true", "logging_steps": "1"}, {}),
}


@pytest.fixture(scope="module")
def chains(request, assets, tmp_path_factory):
    """For each layout that is asked for: the whole run, and a chain that ends at three random steps and at the last."""
    seed = int(os.environ.get("TRAINYARD_TEST_SEED") or random.randrange(1_000_000))
    draw = random.Random(seed)
    directory = tmp_path_factory.mktemp("chains")
    plans: dict[str, Any] = {}
    for method in sorted(variant["method"] for variant in asked_for(request, test_stopped_run_goes_on_bit_by_bit)):
        training_type, values, options = METHODS[method]
        stops = sorted(draw.sample(range(1, STEPS), 3))
        print(f"seed {seed}: {method} stops at {stops}")  # noqa: T201  (shown when it fails)
        before = None
        for name in ("whole", *stops, "end"):
            run = f"{method}-{name}"
            plans[run] = plan(directory / run, assets, options, training_type=training_type, **values)
            if name != "whole":
                plans[run] |= {"stop_at": name if name in stops else None, "resume_from": before}
                before = run
    return runs(directory, plans, world_size=2)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("method", METHODS)
def test_stopped_run_goes_on_bit_by_bit(chains, method, record_seconds):
    whole, *parts = (outcome for name, outcome in chains.items() if name.startswith(f"{method}-"))
    record_seconds([whole, *parts])

    check_exact(whole, parts, STEPS)


@pytest.fixture(scope="module")
def moved(assets, tmp_path_factory):
    """Checkpoints of one rank, of two that share layers and of two stages; each gone on from by another division."""
    directory = tmp_path_factory.mktemp("moved")
    one, two = directory / "one", directory / "two"
    one.mkdir()
    two.mkdir()
    plain = {"dropout": 0.0}
    first = {
        "whole": plan(one / "whole", assets, {}, ranks=1, **plain),
        "paused": plan(one / "paused", assets, {}, ranks=1, **plain) | {"stop_at": 3},
    }
    found = runs(one, first, world_size=1)
    second = {
        "tensor": plan(two / "tensor", assets, TENSOR, **plain) | {"stop_at": 5},
        "pipeline": plan(two / "pipeline", assets, PIPELINE, **plain) | {"stop_at": 9, "resume_from": "tensor"},
        "slow": plan(two / "slow", assets, PIPELINE, **plain) | {"slow_shards": True},
    }
    second["tensor"]["spec"]["resume_checkpoint"] = found["paused"].checkpoints[-1]
    second["slow"]["spec"]["output_config"] = {"checkpoint": {"save_steps": 3}}
    found |= runs(two, second, world_size=2)
    third = {"alone": plan(one / "alone", assets, {}, ranks=1, **plain)}
    third["alone"]["spec"]["resume_checkpoint"] = found["pipeline"].checkpoints[-1]
    return found | runs(one, third, world_size=1)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_checkpoint_is_gone_on_from_by_other_numbers_of_ranks(moved):
    parts = [moved[name] for name in ("paused", "tensor", "pipeline", "alone")]

    losses = {step: loss for part in parts for step, loss in part.series("loss").items()}
    assert losses == pytest.approx(moved["whole"].series("loss"), abs=1e-4)
    assert [part.result["step"] for part in parts] == [3, 5, 9, STEPS]
    assert parts[-1].result["tokens"] == moved["whole"].result["tokens"]
    # Devices, then only their division, then devices again.
    assert [[note["reason"] for note in part.notes] for part in parts] == [[], *[["NOT_BIT_EQUAL"]] * 3]
    assert "another parallel layout" in parts[2].notes[0]["message"]


@pytest.mark.long
def test_training_goes_on_while_all_ranks_write_a_checkpoint(moved):
    slow = moved["slow"]

    assert {int(Path(path).name.removeprefix("step-")) for path in slow.checkpoints} == {3, 6, 9, STEPS}
    assert slow.reached_when_saved["3"] > 3
    assert slow.series("loss") == pytest.approx(moved["whole"].series("loss"), abs=1e-4)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_ranks_are_paused_by_their_supervisor_and_go_on_in_other_processes(tmp_path, assets):
    job = {
        "framework": FRAMEWORK,
        "world_size": 2,
        "training_config": {"framework": {"config": TENSOR}},
        "hyperparameters": {"max_steps": "20", "warmup_steps": "2"},
    }

    whole = train(tmp_path / "whole", assets, **job)
    paused = train(tmp_path / "paused", assets, when=[(at_step(4), PAUSE)], **job)
    resumed = train(tmp_path / "resumed", assets, resume_checkpoint=str(paused.checkpoints[-1]), **job)

    assert (paused.result["stopped"], paused.exit_codes, resumed.exit_codes) == ("pause", [0, 0], [0, 0])
    assert 4 <= paused.result["step"] < 20
    assert paused.series("loss") | resumed.series("loss") == whole.series("loss")
    weights = [(tmp_path / name / "run" / "output" / "model.safetensors").read_bytes() for name in ("whole", "resumed")]
    assert weights[0] == weights[1]
