"""Each document of examples/jobs goes through the real system and does what it is there to show.

They are submitted all at once, with fewer steps than they have (`shortened`); two run at a time on two CPU slots.
"""

import csv
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from tests.builders.example_jobs import DOCUMENTS, GOES_ON_FROM, ROOT, Ended, Runner, filled_in, shortened
from tests.systems.places import BUCKET, REPOSITORY, Places, running_places
from tests.systems.system import NODE_WARM, System
from tests.trainers.in_process import RAN

SECONDS = 1800.0
STEPS = 16
# Rewards rise more slowly than losses fall.
REWARDED = ("rlhf-rloo", "rlhf-reward", "rlhf-judged")
MORE_STEPS = {"resume-best": 32, "lora-merged": 40, **dict.fromkeys(REWARDED, 24)}
OFTEN = {"lora-merged": 8, **dict.fromkeys(REWARDED, 12)}
AS_THEY_ARE = (
    "custom",
    "custom-plain",
    "custom-mpi",
    "roles",
    "validation-split",
)  # one shows no steps of ours, the other its epochs
WITHOUT_TREND = (
    "rlhf-grpo",
    "rlhf-grpo-roles",
    "rlhf-grader",
    "rlhf-rloo",
    "rlhf-ppo",
    "deepspeed-rlhf",
    "fsdp-rlhf",
)  # the loss of a policy does not measure what it learned
NOT_WORTH_GOING_ON = {"early_stopping_threshold": "10"}  # no evaluation is better by that much
# The jobs whose results a test compares with those of the named one.
LOOKS_AT = {**GOES_ON_FROM, "sharegpt": "sft-chat", "field-mapping": "sft-chat"}

pytestmark = [pytest.mark.examples, pytest.mark.timeout(SECONDS + 60)]


@pytest.fixture(scope="module")
def assets(tmp_path_factory: pytest.TempPathFactory, demo_assets: Path) -> Path:
    folder = tmp_path_factory.mktemp("examples") / "demo"
    shutil.copytree(demo_assets, folder)
    return folder


@pytest.fixture(scope="module")
def places(assets: Path) -> Iterator[Places]:
    with running_places(assets) as running:
        yield running


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory, owned_pids: set[int], places: Places) -> Iterator[System]:
    installed = System(tmp_path_factory.mktemp("system"), **places.settings, TRAINYARD_NODE_WARM=NODE_WARM or "auto")
    try:
        installed.start("n1")
        owned_pids.update({installed.redis.pid, *map(installed.pid, ("api", "coordinator", "node-n1"))})
        yield installed
    finally:
        installed.stop()


@pytest.fixture(scope="module")
def ended(request: pytest.FixtureRequest, system: System, places: Places) -> dict[str, Ended]:
    """Every example that the chosen tests look at, run to its end."""
    chosen = [item for item in request.session.items if isinstance(item, pytest.Function) and item.path == request.path]
    asked = {item.callspec.params["name"] for item in chosen}
    asked |= {other for name, other in LOOKS_AT.items() if name in asked}
    documents = {path.stem: filled_in(path, places.names) for path in DOCUMENTS if path.stem in asked}
    for name in documents.keys() - set(AS_THEY_ARE):
        shortened(documents[name], MORE_STEPS.get(name, STEPS), OFTEN.get(name, STEPS // 2))
    if "lora-merged" in documents:
        documents["lora-merged"]["training_config"]["hyperparameters"].update(NOT_WORTH_GOING_ON)
    return Runner(system, places.assets).run(documents, seconds=SECONDS)


@pytest.fixture
def example(name: str, ended: dict[str, Ended], record_property: Callable[[str, object], None]) -> Ended:
    record_property(RAN, (name, ended[name].job["elapsed_seconds"]))
    assert ended[name].job["status"] == "COMPLETED", ended[name].story
    return ended[name]


def shows(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("name", [name])


def marked(name: str) -> Any:
    """Of frameworks that divide a model one document shows how it is asked for; the others are for `make matrix`."""
    is_one_of_many = name.startswith(("deepspeed-", "fsdp-", "megatron-")) and not name.endswith("-sft")
    return pytest.param(name, marks=pytest.mark.matrix) if is_one_of_many else name


@pytest.mark.parametrize("name", [marked(path.stem) for path in DOCUMENTS if path.stem not in GOES_ON_FROM])
def test_example_completes_and_its_loss_falls(example: Ended, name: str) -> None:
    losses = example.series["loss"]

    assert len(losses) == example.job["current_step"]
    if name not in WITHOUT_TREND:
        assert sum(losses[-5:]) / 5 < sum(losses[:5]) / 5 - 0.1, losses
    assert example.report["status"] == "SUCCESS"
    assert example.report["model_hash"]


@shows("sft-packed")
def test_packing_puts_several_records_into_a_sequence(example: Ended) -> None:
    without_packing = STEPS * 8 / record_count(example.assets / "train.jsonl")

    assert example.job["current_epoch"] > 3 * without_packing


@shows("full-finetune")
def test_full_fine_tuning_warms_up_and_keeps_two_checkpoints(example: Ended) -> None:
    rates = example.series["learning_rate"]

    assert rates[0] < max(rates)
    assert rates[-1] < 0.2 * max(rates)
    assert [each["step"] for each in example.checkpoints] == [STEPS // 2, STEPS]


@shows("lora-adapter")
def test_the_adapter_alone_comes_out(example: Ended, tmp_path: Path) -> None:
    model = example.download(tmp_path)

    assert not (model / "model.safetensors").exists()
    configuration = json.loads((model / "adapter_config.json").read_text())
    assert (configuration["r"], set(configuration["target_modules"])) == (8, {"q_proj", "v_proj"})
    names = load_file(model / "adapter_model.safetensors")
    assert all("lora_" in name and (".q_proj." in name or ".v_proj." in name) for name in names)


@shows("lora-merged")
def test_the_merged_model_is_one_that_plain_transformers_runs(example: Ended, tmp_path: Path) -> None:
    model = example.download(tmp_path)

    weights, base = (load_file(folder / "model.safetensors") for folder in (model, example.assets / "model"))
    assert weights.keys() == base.keys()
    assert any((weights[name] != base[name]).any() for name in base)
    generate = [sys.executable, "-m", "examples.generate", "--model", str(model), "--prompt", "def close(self):"]
    said = subprocess.run(generate, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120).stdout
    assert said.startswith("def close(self):")


@shows("lora-merged")
def test_training_ends_when_evaluations_no_longer_improve(example: Ended) -> None:
    assert len(example.series["eval_loss"]) == 3
    assert example.job["current_step"] < MORE_STEPS["lora-merged"]


@shows("dpo")
def test_what_is_preferred_gets_ahead_and_the_margin_says_which_checkpoint_is_best(example: Ended) -> None:
    assert example.series["rewards/margins"][0] == 0.0
    assert example.series["eval_rewards/accuracies"][-1] > 0.9
    best = max(example.checkpoints, key=lambda each: each["metrics"]["eval_rewards/margins"])
    assert example.job["best_checkpoint_id"] == best["checkpoint_id"]


@shows("rlhf-grpo")
def test_function_of_ones_own_raises_the_share_of_vowels(example: Ended) -> None:
    assert example.series["eval_reward"][-1] > example.series["reward"][0]
    best = max(example.checkpoints, key=lambda each: each["metrics"]["eval_reward"])
    assert example.job["best_checkpoint_id"] == best["checkpoint_id"]


@shows("rlhf-grader")
def test_grader_of_the_document_raises_the_share_of_vowels_and_measures_its_parts(example: Ended) -> None:
    assert example.series["eval_graders/vowels"][-1] > example.series["graders/vowels"][0]
    assert len(example.series["graders/alike"]) == len(example.series["reward"])
    assert set(example.series["grader_errors"]) == {0.0}


@shows("rlhf-rloo")
def test_pattern_is_found_more_often_and_the_adapter_is_merged(example: Ended) -> None:
    rewards = example.series["reward"]
    assert sum(rewards[-8:]) > sum(rewards[:8])
    assert example.series["kl"][0] == 0.0
    assert "adapter_config.json" not in example.artifacts


@shows("rlhf-reward")
def test_reward_model_learns_what_is_preferred_and_lies_where_others_find_it(example: Ended) -> None:
    assert example.series["eval_accuracy"][-1] > 0.9
    assert (example.assets / "finished" / "judge" / "config.json").is_file()


@shows("rlhf-judged")
def test_model_of_another_job_judges_completions(example: Ended) -> None:
    rewards = example.series["reward"]
    assert sum(rewards[-8:]) > sum(rewards[:8])


@shows("continued-pretrain")
def test_pretraining_fills_its_blocks_and_validates(example: Ended) -> None:
    assert example.report["tokens"] == STEPS * 8 * 256
    assert example.report["final_metrics"]["eval_loss"] < example.series["loss"][0]


@shows("text-zst")
def test_lines_of_compressed_text_fill_blocks(example: Ended) -> None:
    assert example.report["tokens"] == STEPS * 8 * 256


@shows("csv-columns")
def test_filters_and_sampling_choose_the_records_of_an_epoch(example: Ended) -> None:
    with (example.assets / "functions.csv").open(newline="") as file:
        held = [row for row in csv.DictReader(file) if int(row["words"]) <= 12]
    chosen = [row for row in held if row["module"] not in ("tkinter", "turtle", "distutils")]

    assert records_of_an_epoch(example) == pytest.approx(len(chosen) / 2, rel=0.02)


@shows("parquet-weights")
def test_weights_decide_how_long_an_epoch_is(example: Ended) -> None:
    assert records_of_an_epoch(example) == pytest.approx(1000 / 0.75, rel=0.02)


@shows("chat-template")
def test_template_and_special_tokens_come_with_the_model(example: Ended, tmp_path: Path) -> None:
    model = example.download(tmp_path)

    texts = [path.read_text() for path in model.iterdir() if path.suffix in (".json", ".jinja")]
    assert any("{% generation %}" in text or "{%- generation" in text for text in texts)
    assert any("<|assistant|>" in text for text in texts)
    rows = load_file(model / "model.safetensors")["model.embed_tokens.weight"].shape[0]
    assert rows >= json.loads((example.assets / "model" / "config.json").read_text())["vocab_size"] + 2


@pytest.mark.parametrize("name", ["sharegpt", "field-mapping"])
def test_the_same_conversations_under_other_names_train_the_same(example: Ended, ended: dict[str, Ended]) -> None:
    assert example.series["loss"] == ended["sft-chat"].series["loss"]


@shows("streaming")
def test_streamed_training_is_evaluated(example: Ended) -> None:
    assert len(example.series["eval_loss"]) == 2


@shows("validation-split")
def test_a_share_is_kept_back_and_each_epoch_ends_with_an_evaluation(example: Ended) -> None:
    rows = round(0.2 * record_count(example.assets / "train.jsonl"))
    steps = -(-(rows - round(0.05 * rows)) // 16)

    assert [each["step"] for each in example.checkpoints] == [steps, 2 * steps]
    assert len(example.series["eval_loss"]) == 2


@shows("validation-test")
def test_the_test_source_is_measured_once_at_the_end(example: Ended) -> None:
    assert len(example.series["eval_loss"]) == 2
    assert example.report["final_metrics"]["test_loss"] > 0
    best = min(example.checkpoints, key=lambda each: each["metrics"]["eval_loss"])
    assert example.job["best_checkpoint_id"] == best["checkpoint_id"]


@shows("resume-best")
def test_it_goes_on_from_the_best_checkpoint_of_the_other_job(example: Ended, ended: dict[str, Ended]) -> None:
    first = ended[GOES_ON_FROM["resume-best"]]
    best = next(each for each in first.checkpoints if each["checkpoint_id"] == first.job["best_checkpoint_id"])

    attempt = example.system.get(f"/v1/jobs/{example.job_id}/attempts")["attempts"][0]
    assert (attempt["start_step"], attempt["end_step"]) == (best["step"], MORE_STEPS["resume-best"])
    assert len(example.series["loss"]) == MORE_STEPS["resume-best"] - best["step"]
    assert example.series["loss"][0] < first.series["loss"][0] - 0.5


@shows("http")
def test_data_comes_from_a_web_server(example: Ended, places: Places) -> None:
    assert any("/train.jsonl.gz 200" in line for line in places.web.asked)
    assert len(example.series["eval_loss"]) == 2


@shows("s3")
def test_the_model_goes_back_to_the_bucket(example: Ended, places: Places) -> None:
    assert example.report["model_uri"].rstrip("/") == f"s3://{BUCKET}/finished/docstrings"
    stored = places.s3.files("finished/docstrings/")
    assert {name for name in example.artifacts if not name.startswith("tensorboard/")} <= stored.keys()
    assert all(stored[name] == content(example, name) for name in example.report["weight_files"])


@shows("output-path")
def test_the_model_lies_where_it_was_wanted(example: Ended) -> None:
    wanted = example.assets / "finished" / "docstrings"

    assert example.report["model_uri"].rstrip("/") == f"file://{wanted}"
    assert all((wanted / name).read_bytes() == content(example, name) for name in example.report["weight_files"])


@shows("push-to-hub")
def test_the_hub_has_the_adapter(example: Ended, places: Places) -> None:
    assert places.hub.repository(REPOSITORY).private
    assert places.hub.files(REPOSITORY)["adapter_model.safetensors"] == content(example, "adapter_model.safetensors")


@shows("custom")
def test_the_script_leaves_its_model(example: Ended) -> None:
    assert "bigram.json" in example.artifacts


@shows("custom-plain")
def test_metrics_are_found_in_what_a_script_prints(example: Ended) -> None:
    metrics = example.job["latest_metrics"]

    assert (example.job["current_step"], example.job["total_steps"]) == (200, 200)
    assert metrics["loss"] < 0.05
    assert metrics["slope"] == pytest.approx(3, abs=0.1)
    assert json.loads(content(example, "line.json"))["slope"] == pytest.approx(metrics["slope"], abs=1e-3)


@shows("custom-mpi")
def test_processes_that_mpirun_started_learn_together(example: Ended) -> None:
    assert example.job["latest_metrics"]["loss"] < 0.05
    assert json.loads(content(example, "line.json"))["slope"] == pytest.approx(3, abs=0.1)


@shows("roles")
def test_roles_of_one_job_learn_together_and_the_sidecar_is_stopped(example: Ended) -> None:
    (attempt,) = example.system.get(f"/v1/jobs/{example.job_id}/attempts")["attempts"]

    assert json.loads(content(example, "policy.json"))["best"] == 7
    instances = {each["role"]: (each["index"], each["exit_code"]) for each in attempt["instances"]}
    assert instances == {"trainer": (0, 0), "rollout": (0, 143)}
    assert [each["step"] for each in example.checkpoints] == [20, 40, 60]


def record_count(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def records_of_an_epoch(example: Ended) -> float:
    return float(example.job["current_step"] * example.job["data_config"]["batch_size"] / example.job["current_epoch"])


def content(example: Ended, name: str) -> bytes:
    return example.system.download(f"/v1/jobs/{example.job_id}/artifacts/{name}")
