"""Real trainings with DeepSpeed: what its ranks hold, the same losses as HF_TRAINER, and bit-exact resumes."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.trainers.in_process import Outcome, plan_of, runs
from tests.trainers.joined import check_equal, joined, weights_in
from trainyard.protocol import checkpoint_manifest

FRAMEWORK = "DEEPSPEED"
STEPS = 10  # an epoch has 8, the last one half full
TIMEOUT = 1500
RLHF: dict[str, Any] = {"reward": "regex:[aeiou]{2}", "num_generations": "4", "max_completion_length": "9"}
OFFLOADED = {"zero_stage": "3", "offload_optimizer": "cpu", "offload_param": "cpu"}
# What each method runs with: training type, hyperparameters, how it is divided.
METHODS: dict[str, tuple[str, dict[str, Any], dict[str, str]]] = {
    "sft-1": ("SFT", {"group_by_length": "true"}, {"zero_stage": "1"}),
    "sft-3": ("SFT", {"gradient_checkpointing": "true"}, {"zero_stage": "3"}),
    "offloaded-2": ("FULL_FINETUNE", {"packing": "true"}, {"offload_optimizer": "cpu"}),
    "offloaded-3": ("FULL_FINETUNE", {"optim": "adafactor"}, OFFLOADED),
    "lora-2": ("LORA", {"lora_dropout": "0.1", "modules_to_save": "embed_tokens"}, {}),
    "lora-3": ("LORA", {"lora_dropout": "0.1"}, {"zero_stage": "3"}),
    "qlora-2": ("QLORA", {"lora_dropout": "0.1"}, {}),
    "pretrain-2": ("CONTINUED_PRETRAIN", {}, {}),
    "dpo-3": ("DPO", {"disable_dropout": "false"}, {"zero_stage": "3"}),
    "dpo-lora-3": ("DPO", {"use_lora": "true", "lora_dropout": "0.1"}, {"zero_stage": "3"}),
    "grpo-2": ("RLHF", RLHF, {}),
    "grpo-3": ("RLHF", {**RLHF, "beta": "0.1"}, {"zero_stage": "3"}),
    "rloo-lora-2": ("RLHF", {**RLHF, "algorithm": "rloo", "use_lora": "true"}, {}),
    "reward-3": ("RLHF", {"algorithm": "reward"}, {"zero_stage": "3"}),
}
# The exact resumes of the others are for `make matrix`.
QUICK = ("sft-3", "lora-3", "dpo-3")
SERIES = ("loss", "learning_rate", "grad_norm", "mean_token_accuracy", "rewards/margins", "reward", "kl", "eval_loss")
SMALL: dict[str, Any] = {"max_steps": "4", "warmup_steps": "2"}
PAUSES = {step: {"type": "pause", "save_checkpoint": True, "number": number} for number, step in ((1, 2), (2, 3))}


def plan(
    directory: Path,
    assets: Path,
    *,
    options: dict[str, str] | None = None,
    training_type: str = "SFT",
    ranks: int = 2,
    **values: Any,
) -> dict[str, Any]:
    given = {"max_steps": str(STEPS), "warmup_steps": "3", **values}
    found = plan_of(directory, assets, training_type, given, world_size=ranks, framework=FRAMEWORK)
    found["spec"]["training_config"]["framework"] = {"type": FRAMEWORK, "config": options or {}}
    return found


def newest(outcome: Outcome) -> str:
    return outcome.checkpoints[-1]


@pytest.fixture(scope="module")
def pair(assets, tmp_path_factory) -> dict[str, Outcome]:
    """Two ranks that have divided all there is, once without a stop and once with."""
    directory = tmp_path_factory.mktemp("pair")
    three = {"zero_stage": "3"}
    plans = {
        "whole": plan(directory / "whole", assets, options=three, **SMALL) | {"records_shards": True},
        "paused": plan(directory / "paused", assets, options=three, **SMALL) | {"stop_at": 2},
        "resumed": plan(directory / "resumed", assets, options=three, **SMALL) | {"resume_from": "paused"},
        "no memory": plan(directory / "no-memory", assets, options=three, **SMALL)
        | {"no_memory_for_copies": True, "commands": {1: {"type": "checkpoint"}}},
        "dpo": plan(directory / "dpo", assets, options=three, training_type="DPO", **SMALL)
        | {"records_reference": True, "stop_at": 2},
        "disk full": plan(directory / "full", assets, options=three, **SMALL)
        | {"commands": PAUSES, "unwritten_shards": [2]},
        "moments": plan(directory / "moments", assets, **SMALL) | {"stop_at": 2},
        "last": plan(directory / "last", assets, **SMALL) | {"stop_at": 4, "resume_from": "moments"},
        "finished": plan(directory / "finished", assets, **SMALL) | {"resume_from": "last"},
        "last of 3": plan(directory / "last-3", assets, options=three, **SMALL) | {"stop_at": 4},
        "finished 3": plan(directory / "finished-3", assets, options=three, **SMALL) | {"resume_from": "last of 3"},
        "adapter": plan(directory / "adapter", assets, training_type="LORA", **SMALL)
        | {"commands": {4: {"type": "checkpoint"}}},
        "adapter 3": plan(directory / "adapter-3", assets, options=three, training_type="LORA", **SMALL)
        | {"commands": {4: {"type": "checkpoint"}}},
        "taken over": plan(directory / "taken-over", assets, **{**SMALL, "learning_rate": "1e-3", "max_steps": "6"})
        | {"resume_from": "moments"},
    }
    plans["taken over"]["spec"]["job_id"] = "another"
    return runs(directory, plans, world_size=2)


@pytest.mark.long
def test_in_stage_3_each_rank_has_half_of_every_parameter(pair):
    directory = pair["whole"].output.parent

    for rank in (0, 1):
        shards = json.loads((directory / f"shards-{rank}.json").read_text())
        assert len(shards) > 10
        assert all(here * 2 == whole for whole, here in shards.values()), shards


@pytest.mark.long
def test_in_stage_2_each_rank_has_half_of_the_moments(pair):
    files = {entry.path: entry.size for entry in checkpoint_manifest.verify(pair["moments"].checkpoints[-1]).files}
    model, *parts = (
        files[f"global_step2/{name}"]
        for name in (
            "mp_rank_00_model_states.pt",
            "zero_pp_rank_0_mp_rank_00_optim_states.pt",
            "zero_pp_rank_1_mp_rank_00_optim_states.pt",
        )
    )

    # Two moments of every weight, and the weight that they are for.
    assert parts == [pytest.approx(1.5 * model, rel=0.02)] * 2


@pytest.mark.long
@pytest.mark.parametrize(
    ("saved", "exported"),
    [("last", "finished"), ("last of 3", "finished 3"), ("adapter", "adapter"), ("adapter 3", "adapter 3")],
)
def test_weights_of_a_checkpoint_are_put_together_bit_by_bit(pair, tmp_path, saved, exported):
    found = joined(FRAMEWORK, newest(pair[saved]), tmp_path, adapter="adapter" in saved)

    check_equal(weights_in(found), weights_in(pair[exported].output))
    assert (found / "tokenizer_config.json").is_file()


@pytest.mark.long
def test_without_memory_for_a_copy_the_training_rests_until_a_checkpoint_is_written(pair):
    found = pair["no memory"]

    assert found.reached_when_saved["1"] == 1
    check_exact(pair["whole"], [found])


@pytest.mark.long
def test_the_reference_is_divided_too_and_in_no_checkpoint(pair):
    directory = Path(newest(pair["dpo"])).parents[1]

    for rank in (0, 1):
        shards = json.loads((directory / f"reference-{rank}.json").read_text())
        assert len(shards) > 10
        assert all(here * 2 == whole for whole, here in shards.values()), shards
    sizes = [
        sum(entry.size for entry in checkpoint_manifest.verify(newest(pair[name])).files) for name in ("dpo", "paused")
    ]
    assert sizes[0] == pytest.approx(sizes[1], rel=0.02)


@pytest.mark.long
def test_a_paused_run_goes_on_bit_by_bit(pair):
    check_exact(pair["whole"], [pair["paused"], pair["resumed"]])


@pytest.mark.long
def test_pause_is_given_up_when_a_rank_can_not_write_its_part_and_the_next_one_is_followed(pair):
    found = pair["disk full"]

    assert found.pauses_failed == ["OSError: [Errno 28] No space left on device"]
    assert (found.result["stopped"], found.result["step"]) == ("pause", 3)
    assert [Path(path).name for path in found.checkpoints] == ["step-3"]
    assert found.series("loss") == {step: pair["whole"].series("loss")[step] for step in (1, 2, 3)}


@pytest.mark.long
def test_checkpoint_is_complete_and_has_a_part_of_each_rank(pair):
    files = {entry.path for entry in checkpoint_manifest.verify(pair["paused"].checkpoints[-1]).files}

    parts = {f"global_step2/zero_pp_rank_{rank}_mp_rank_00_optim_states.pt" for rank in (0, 1)}
    assert parts | {"latest"} <= files
    assert {"trainer_state.json", "scheduler.pt", "rng_state_0.pth", "rng_state_1.pth", "tokenizer.json"} <= files


@pytest.mark.long
@pytest.mark.parametrize(("last", "finished"), [("last", "finished"), ("last of 3", "finished 3")])
def test_training_that_was_paused_after_its_last_step_is_exported(pair, last, finished):
    done = pair[finished]

    assert pair[last].result["stopped"] == "pause"
    assert (done.result["stopped"], done.result["step"], done.series("loss")) == (None, 4, {})
    # Stages differ by rounding.
    expected = AutoModelForCausalLM.from_pretrained(pair["whole"].output).state_dict()
    found = AutoModelForCausalLM.from_pretrained(done.output).state_dict()
    assert all(torch.allclose(found[name], tensor, atol=1e-4) for name, tensor in expected.items())


@pytest.mark.long
def test_job_that_takes_over_a_checkpoint_has_rates_of_its_own(pair):
    rates = pair["taken over"].series("learning_rate")

    # After two steps that warm up, four that lead to 0.
    assert rates == {step: pytest.approx(1e-3 * (7 - step) / 4) for step in (3, 4, 5, 6)}


@pytest.mark.long
def test_result_is_a_whole_model_that_transformers_loads_alone(pair):
    model = AutoModelForCausalLM.from_pretrained(pair["whole"].output)

    assert all(parameter.isfinite().all() for parameter in model.parameters())


@pytest.mark.long
@pytest.mark.timeout(TIMEOUT)
@pytest.mark.parametrize("stage", ["2", "3"])
def test_another_number_of_ranks_goes_on(assets, tmp_path, stage):
    """With the same weights, moments and records: without dropout the losses are the same but for rounding."""

    def without_dropout(name: str, ranks: int, resumed: Outcome | None = None, **changes: Any) -> dict[str, Any]:
        found = plan(tmp_path / name, assets, options={"zero_stage": stage}, ranks=ranks, **SMALL) | changes
        found["spec"]["training_config"]["base_model"] = {"model_kwargs": {"attention_dropout": 0.0}}
        found["spec"]["resume_checkpoint"] = resumed.checkpoints[-1] if resumed else ""
        return found

    plans = {"whole": without_dropout("whole", 2), "start": without_dropout("start", 2, stop_at=2)}
    whole, start = runs(tmp_path, plans, world_size=2).values()
    (alone,) = runs(tmp_path, {"alone": without_dropout("alone", 1, start, stop_at=3)}).values()
    (last,) = runs(tmp_path, {"last": without_dropout("last", 2, alone)}, world_size=2).values()

    found = start.series("loss") | alone.series("loss") | last.series("loss")
    assert found == pytest.approx(whole.series("loss"), rel=1e-4)
    assert [note["reason"] for note in (*alone.notes, *last.notes)] == ["NOT_BIT_EQUAL"] * 2


@pytest.fixture(scope="module")
def outcomes(request, assets, tmp_path_factory) -> dict[str, Outcome]:
    """For each method that is asked for: a whole run, and a chain that ends at three random steps and at the last."""
    seed = random.randrange(1_000_000)
    draw = random.Random(seed)
    directory = tmp_path_factory.mktemp("zero")
    plans: dict[str, Any] = {}
    asked = {item.callspec.params["method"] for item in request.session.items if is_resume(item)}
    for method in sorted(asked):
        training_type, values, options = METHODS[method]
        before = None
        stops = sorted(draw.sample(range(1, STEPS), 3))
        print(f"seed {seed}: {method} stops at {stops}")  # noqa: T201  (shown when it fails)
        for name in ("whole", *stops, "end"):
            run = f"{method}:{name}"
            plans[run] = plan(directory / run, assets, training_type=training_type, options=options, **values)
            if name != "whole":
                plans[run] |= {"stop_at": name if name in stops else None, "resume_from": before}
                before = run
    return runs(directory, plans, world_size=2, timeout_seconds=TIMEOUT - 20)


def marked(method: str) -> Any:
    return pytest.param(method, marks=pytest.mark.long if method in QUICK else pytest.mark.matrix)


@pytest.mark.timeout(TIMEOUT)  # the first one waits for all the runs
@pytest.mark.parametrize("method", [*map(marked, METHODS)])
def test_stopped_run_goes_on_bit_by_bit(outcomes, method, record_seconds):
    parts = [outcome for name, outcome in outcomes.items() if name.startswith(f"{method}:")]
    record_seconds(parts)

    check_exact(parts[0], parts[1:])


def is_resume(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and item.function is test_stopped_run_goes_on_bit_by_bit


def check_exact(whole: Outcome, parts: list[Outcome]) -> None:
    assert [part.result["stopped"] for part in parts] == ["pause"] * (len(parts) - 1) + [None]
    for name in SERIES:
        assert {step: value for part in parts for step, value in part.series(name).items()} == whole.series(name), name
    assert parts[-1].weights() == whole.weights()
    assert parts[-1].result["tokens"] == whole.result["tokens"] > 0
