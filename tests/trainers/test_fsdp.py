"""Real trainings with FSDP: what its ranks hold, the same losses as HF_TRAINER, and bit-exact resumes."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from peft import PeftModel, get_peft_model_state_dict
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from tests.trainers.in_process import Outcome, plan_of, runs
from tests.trainers.joined import check_equal, joined, weights_in
from trainyard.protocol import checkpoint_manifest

FRAMEWORK = "FSDP"
STEPS = 10  # an epoch has 8, the last one half full
TIMEOUT = 1500
RLHF: dict[str, Any] = {"reward": "regex:[aeiou]{2}", "num_generations": "4", "max_completion_length": "9"}
# What each method runs with: training type, hyperparameters.
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "sft": ("SFT", {"group_by_length": "true", "gradient_checkpointing": "true"}),
    "lora": ("LORA", {"lora_dropout": "0.1", "modules_to_save": "embed_tokens"}),
    "packed": ("FULL_FINETUNE", {"packing": "true"}),
    "pretrain": ("CONTINUED_PRETRAIN", {}),
    "dpo": ("DPO", {"disable_dropout": "false"}),
    "dpo_lora": ("DPO", {"use_lora": "true", "lora_dropout": "0.1"}),
    "grpo": ("RLHF", {**RLHF, "beta": "0.1"}),
    "rloo_lora": ("RLHF", {**RLHF, "algorithm": "rloo", "use_lora": "true"}),
    "reward": ("RLHF", {"algorithm": "reward"}),
}
# The exact resumes of the others are for `make matrix`.
QUICK = ("sft", "dpo")
SERIES = ("loss", "learning_rate", "grad_norm", "mean_token_accuracy", "rewards/margins", "reward", "kl", "eval_loss")
SMALL: dict[str, Any] = {"max_steps": "4", "warmup_steps": "2"}
PAUSES = {step: {"type": "pause", "save_checkpoint": True, "number": number} for number, step in ((1, 2), (2, 3))}


def plan(directory: Path, assets: Path, *, ranks: int = 2, training_type: str = "SFT", **values: Any) -> dict[str, Any]:
    given = {"max_steps": str(STEPS), "warmup_steps": "3", **values}
    return plan_of(directory, assets, training_type, given, world_size=ranks, framework=FRAMEWORK)


def offloaded(found: dict[str, Any]) -> dict[str, Any]:
    found["spec"]["training_config"]["framework"] = {"config": {"cpu_offload": "true"}}
    return found


def newest(outcome: Outcome) -> str:
    return outcome.checkpoints[-1]


@pytest.fixture(scope="module")
def pair(assets, tmp_path_factory) -> dict[str, Outcome]:
    """Two ranks, once without a stop and once with."""
    directory = tmp_path_factory.mktemp("pair")
    plans = {
        "whole": plan(directory / "whole", assets, **SMALL) | {"records_shards": True},
        "paused": plan(directory / "paused", assets, **SMALL) | {"stop_at": 2},
        "resumed": plan(directory / "resumed", assets, **SMALL) | {"resume_from": "paused"},
        "last": plan(directory / "last", assets, **SMALL) | {"stop_at": 4},
        "finished": plan(directory / "finished", assets, **SMALL) | {"resume_from": "last"},
        "taken over": plan(directory / "taken-over", assets, **{**SMALL, "learning_rate": "1e-3", "max_steps": "6"})
        | {"resume_from": "paused"},
        "no memory": plan(directory / "no-memory", assets, **SMALL)
        | {"no_memory_for_copies": True, "commands": {1: {"type": "checkpoint"}}},
        "offloaded": offloaded(plan(directory / "offloaded", assets, **SMALL)),
        "adapter": plan(directory / "adapter", assets, training_type="LORA", **SMALL)
        | {"commands": {4: {"type": "checkpoint"}}},
        "dpo": plan(directory / "dpo", assets, training_type="DPO", **SMALL)
        | {"records_reference": True, "stop_at": 2},
        "disk full": plan(directory / "full", assets, **SMALL) | {"commands": PAUSES, "unwritten_shards": [2]},
    }
    plans["taken over"]["spec"]["job_id"] = "another"
    return runs(directory, plans, world_size=2)


@pytest.mark.long
def test_each_rank_has_half_of_every_parameter(pair):
    directory = pair["whole"].output.parent

    for rank in (0, 1):
        shards = json.loads((directory / f"shards-{rank}.json").read_text())
        assert len(shards) > 10
        assert all(here * 2 == whole for whole, here in shards.values()), shards


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
def test_an_option_that_is_of_use_to_gpus_alone_changes_nothing_on_cpu_slots(pair):
    assert pair["offloaded"].error is None
    assert pair["offloaded"].series("loss") == pytest.approx(pair["whole"].series("loss"), rel=1e-5)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_an_adapter_comes_out_as_peft_names_it(pair, assets):
    adapter = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(assets / "model"), pair["adapter"].output)
    names = set(load_file(pair["adapter"].output / "adapter_model.safetensors"))

    assert names == set(get_peft_model_state_dict(adapter, save_embedding_layers=False))
    assert not [name for name in names if "_checkpoint" in name or "_fsdp" in name]


@pytest.mark.long
@pytest.mark.parametrize(("saved", "exported"), [("last", "finished"), ("adapter", "adapter")])
def test_weights_of_a_checkpoint_are_put_together_bit_by_bit(pair, tmp_path, saved, exported):
    found = joined(FRAMEWORK, newest(pair[saved]), tmp_path, adapter=saved == "adapter")

    check_equal(weights_in(found), weights_in(pair[exported].output))
    assert (found / "tokenizer_config.json").is_file()


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
    files = {entry.path for entry in checkpoint_manifest.verify(newest(pair["paused"])).files}

    assert {"shards/__0_0.distcp", "shards/__1_0.distcp", "shards/.metadata"} <= files
    assert {"trainer_state.json", "scheduler.pt", "rng_state_0.pth", "rng_state_1.pth", "tokenizer.json"} <= files


@pytest.mark.long
def test_training_that_was_paused_after_its_last_step_is_exported(pair):
    last, done = pair["last"], pair["finished"]

    assert last.result["stopped"] == "pause"
    assert (done.result["stopped"], done.result["step"], done.series("loss")) == (None, 4, {})
    assert done.weights() == pair["whole"].weights()


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
@pytest.mark.parametrize("method", ["grpo", "rloo_lora"])
def test_ranks_whose_completions_have_ended_go_on_with_the_others(assets, tmp_path, method):
    training_type, values = METHODS[method]
    few = {**values, **SMALL, "max_steps": "2"}
    uneven = plan(tmp_path / "uneven", assets, training_type=training_type, **few) | {"uneven_completions": True}
    (found,) = runs(tmp_path, {"uneven": uneven}, world_size=2).values()

    first, second = (json.loads((tmp_path / "uneven" / f"completions-{rank}.json").read_text()) for rank in (0, 1))
    assert first == second
    assert set(first) == {3}  # the longest has two tokens
    assert found.result["step"] == 2


@pytest.mark.long
@pytest.mark.timeout(TIMEOUT)
def test_another_number_of_ranks_goes_on(pair, assets, tmp_path):
    """Without a record left out or repeated: the losses are those of the others but for rounding and dropout."""
    alone = plan(tmp_path / "alone", assets, ranks=1, **SMALL) | {"stop_at": 3}
    alone["spec"]["resume_checkpoint"] = newest(pair["paused"])
    (first,) = runs(tmp_path, {"alone": alone}).values()
    both = plan(tmp_path / "both", assets, **SMALL)
    both["spec"]["resume_checkpoint"] = newest(first)
    (last,) = runs(tmp_path, {"both": both}, world_size=2).values()

    found = first.series("loss") | last.series("loss")
    assert found == pytest.approx({step: pair["whole"].series("loss")[step] for step in (3, 4)}, rel=0.05)
    assert [note["reason"] for note in (*first.notes, *last.notes)] == ["NOT_BIT_EQUAL"] * 2


@pytest.fixture(scope="module")
def outcomes(request, assets, tmp_path_factory) -> dict[str, Outcome]:
    """For each method that is asked for: a whole run, and a chain that ends at three random steps and at the last."""
    seed = random.randrange(1_000_000)
    draw = random.Random(seed)
    directory = tmp_path_factory.mktemp("fsdp")
    plans: dict[str, Any] = {}
    asked = {item.callspec.params["method"] for item in request.session.items if is_resume(item)}
    for method in sorted(asked):
        training_type, values = METHODS[method]
        before = None
        stops = sorted(draw.sample(range(1, STEPS), 3))
        print(f"seed {seed}: {method} stops at {stops}")  # noqa: T201  (shown when it fails)
        for name in ("whole", *stops, "end"):
            run = f"{method}-{name}"
            plans[run] = plan(directory / run, assets, training_type=training_type, **values)
            if name != "whole":
                plans[run] |= {"stop_at": name if name in stops else None, "resume_from": before}
                before = run
    return runs(directory, plans, world_size=2, timeout_seconds=TIMEOUT - 20)


def marked(method: str) -> Any:
    return pytest.param(method, marks=pytest.mark.long if method in QUICK else pytest.mark.matrix)


@pytest.mark.timeout(TIMEOUT)  # the first one waits for all the runs
@pytest.mark.parametrize("method", [*map(marked, METHODS)])
def test_stopped_run_goes_on_bit_by_bit(outcomes, method, record_seconds):
    parts = [outcome for name, outcome in outcomes.items() if name.startswith(f"{method}-")]
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
