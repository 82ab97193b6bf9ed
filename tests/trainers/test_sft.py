"""Supervised fine-tuning for real: tiny runs on the CPU, one rank and two, stopped and resumed."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app.domain.spec.hyperparameters.parsing import parse
from tests.trainers.supervision import ROOT, TRAINER, Ended, FakeSupervisor, at_step, free_port
from trainyard.protocol import checkpoint_manifest as _manifest

PAUSE = {"type": "pause", "save_checkpoint": True}


def train(
    base: Path,
    assets: Path,
    *,
    when: Any = (),
    hyperparameters: Any = (),
    checkpoint_failure: Any = None,
    stores_from: Any = None,
    **changes: Any,
) -> Ended:
    """One attempt of a small job in its own directory."""
    run_dir = base / "run"
    framework = changes.get("framework", "HF_TRAINER")
    spec = {
        "job_id": "job-1",
        "attempt": 1,
        "run_dir": str(run_dir),
        "framework": framework,
        "training_type": "SFT",
        "training_config": {},
        "data_config": {"batch_size": 4, "gradient_accumulation_steps": 2, "max_seq_length": 48},
        "output_config": {"checkpoint": {"save_steps": 100}},
        "hyperparameters": parse(framework, "SFT", {"learning_rate": "5e-3", **dict(hyperparameters)}),
        "model_path": str(assets / "model"),
        "tokenizer_path": "",
        "data_paths": [str(assets / "train.jsonl")],
        "device_type": "cpu",
        "world_size": 1,
        "threads_per_rank": 1,
        "resume_checkpoint": "",
        "master_port": free_port(),
        **changes,
    }
    supervisor = FakeSupervisor(run_dir, base / "storage", list(when), checkpoint_failure, stores_from)
    return supervisor.run(TRAINER, spec, timeout_seconds=300)


def weights_hash(base: Path) -> str:
    return hashlib.sha256((base / "run" / "output" / "model.safetensors").read_bytes()).hexdigest()


@pytest.mark.long
def test_chat_is_learned_measured_and_exported(tmp_path, assets):
    ended = train(
        tmp_path,
        assets,
        data_paths=[str(assets / "chat.jsonl")],
        data_config={"batch_size": 8, "validation_split": 0.1, "max_seq_length": 96},
        hyperparameters={"max_steps": "40", "warmup_steps": "2"},
    )

    loss = ended.series("loss")
    assert ended.exit_codes == [0]
    assert list(loss) == list(range(1, 41))
    assert loss[40] < 0.75 * loss[1]
    assert ended.phases == ["TRAINING", "EVALUATING", "CHECKPOINTING", "EXPORTING"]
    assert set(ended.series("eval_loss")) == {40}
    names = {"loss", "learning_rate", "grad_norm", "tokens_per_second", "samples_per_second", "step_seconds"}
    assert names <= ended.of_type("metric")[0]["values"].keys()
    assert ended.of_type("progress")[-1]["step"] == 40
    assert ended.of_type("progress")[-1]["total_steps"] == 40
    assert ended.result["stopped"] is None
    assert ended.result["weight_files"] == ["model.safetensors"]
    assert ended.result["final_metrics"].keys() >= {"loss", "eval_loss", "train_loss"}
    assert ended.result["tokens"] == ended.of_type("progress")[-1]["tokens"] > 0
    (checkpoint,) = ended.checkpoints
    manifest = _manifest.verify(checkpoint)
    assert (manifest.step, manifest.world_size, manifest.training_type) == (40, 1, "SFT")
    _check_export(tmp_path / "run" / "output")


def _check_export(directory: Path) -> None:
    """It loads with plain transformers in a process of its own, generates, and keeps its chat template."""
    command = [sys.executable, "-m", "examples.generate", "--model", str(directory), "--prompt", "def f(x):"]
    ended = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert ended.stdout.startswith("def f(x):")
    assert "### " in (directory / "chat_template.jinja").read_text()


@pytest.mark.long
def test_paused_ranks_go_on_bit_by_bit_in_other_processes(tmp_path, assets):
    """Every step and every method: see test_exact_resume."""
    world_size, pause_after = 2, 9
    job = {
        "world_size": world_size,
        "data_paths": [str(assets / "train.jsonl"), str(assets / "validation.jsonl")],
        "data_config": {
            "batch_size": 4 // world_size,
            "gradient_accumulation_steps": 2,
            "max_seq_length": 48,
            "sources": [{"split": "train"}, {"split": "validation"}],
        },
        "training_config": {"evaluation": {"strategy": "epoch"}},
        "hyperparameters": {"max_steps": "18", "warmup_steps": "3", "lr_scheduler_type": "cosine"},
    }

    whole = train(tmp_path / "whole", assets, when=[(at_step(2), {"type": "checkpoint"})], **job)
    paused = train(tmp_path / "paused", assets, when=[(at_step(pause_after), PAUSE)], **job)
    resumed = train(tmp_path / "resumed", assets, resume_checkpoint=str(paused.checkpoints[-1]), **job)

    stopped_at = paused.result["step"]
    assert paused.result["stopped"] == "pause"
    assert paused.result["weight_files"] == []
    assert paused.exit_codes == [0] * world_size
    assert pause_after < stopped_at < 18
    assert len(paused.checkpoints) == 1
    assert {**paused.series("loss"), **resumed.series("loss")} == whole.series("loss")
    assert {**paused.series("eval_loss"), **resumed.series("eval_loss")} == whole.series("eval_loss")
    assert min(resumed.series("loss")) == stopped_at + 1
    assert {**paused.series("tokens"), **resumed.series("tokens")} == whole.series("tokens")
    assert resumed.result["tokens"] == whole.result["tokens"] == whole.series("tokens")[18]
    assert resumed.result["final_metrics"]["train_loss"] == whole.result["final_metrics"]["train_loss"]
    assert weights_hash(tmp_path / "resumed") == weights_hash(tmp_path / "whole")
    assert len(whole.checkpoints) == 2
    assert len(whole.of_type("done")) == world_size - 1


@pytest.mark.long
def test_totals_are_exact_after_a_resume_between_two_logs(tmp_path, assets):
    # Between the two logs there is time for a pause to arrive, also on a machine that is busy.
    job = {"hyperparameters": {"max_steps": "60", "logging_steps": "40"}}

    whole = train(tmp_path / "whole", assets, **job)
    paused = train(tmp_path / "paused", assets, when=[(_progress_at(6), PAUSE)], **job)
    resumed = train(tmp_path / "resumed", assets, resume_checkpoint=str(paused.checkpoints[-1]), **job)

    assert 6 <= paused.result["step"] < 40
    assert paused.result["tokens"] > 0
    assert resumed.result["tokens"] == whole.result["tokens"]
    mean = whole.result["final_metrics"]["train_loss"]
    assert resumed.result["final_metrics"]["train_loss"] == pytest.approx(mean)
    assert set(whole.series("loss")) == {40, 60}


def _progress_at(step: int) -> Any:
    return lambda message: message["type"] == "progress" and message["step"] >= step


@pytest.mark.long
def test_run_stopped_after_its_last_step_only_exports(tmp_path, assets):
    job = {"hyperparameters": {"max_steps": "3"}}
    # The last checkpoint waits for the one before it, which is stored once the pause is sent: it arrives in time.
    saves = {"output_config": {"checkpoint": {"save_steps": 2}}, "stores_from": _last_checkpoint}
    whole = train(tmp_path / "whole", assets, when=[(_last_checkpoint, PAUSE)], **job, **saves)
    start = str(whole.checkpoints[-1])
    again = train(tmp_path / "again", assets, resume_checkpoint=start, **job)
    twice = train(tmp_path / "twice", assets, when=[(_is_hello, PAUSE)], resume_checkpoint=start, **job)

    assert (twice.result["stopped"], twice.checkpoints) == ("pause", [])
    assert whole.result["stopped"] == "pause"
    assert again.series("loss") == {}
    assert again.phases == ["TRAINING", "EXPORTING"]
    assert again.result["step"] == 3
    exported = (tmp_path / "again" / "run" / "output" / "model.safetensors").read_bytes()
    assert exported == (whole.checkpoints[-1] / "model.safetensors").read_bytes()


def _is_hello(message: dict[str, Any]) -> bool:
    return bool(message["type"] == "hello")


def _last_checkpoint(message: dict[str, Any]) -> bool:
    return bool(message["type"] == "phase" and message["phase"] == "CHECKPOINTING")


@pytest.mark.long
def test_cancelled_run_saves_and_exports_nothing(tmp_path, assets):
    ended = train(tmp_path, assets, when=[(at_step(2), {"type": "cancel"})], hyperparameters={"max_steps": "500"})

    assert ended.exit_codes == [0]
    assert ended.result["stopped"] == "cancel"
    assert ended.result["step"] < 500
    assert ended.checkpoints == []
    assert not (tmp_path / "run" / "output").exists()


def test_loss_that_is_no_number_is_shown_and_ends_the_run(tmp_path, assets):
    values = {"max_steps": "60", "learning_rate": "10", "optim": "sgd", "max_grad_norm": "0"}
    ended = train(tmp_path, assets, hyperparameters=values)

    (error,) = ended.of_type("error")
    assert ended.exit_codes == [1]
    assert "NaN" in [str(loss) for loss in ended.series("loss").values()]
    assert error["error_type"] == "NON_FINITE_LOSS"


@pytest.mark.long
def test_rank_shows_where_all_its_threads_are_and_trains_on(tmp_path, assets):
    def is_at_step_2(message: dict[str, Any]) -> bool:
        return bool(message["type"] == "progress" and message["step"] >= 2)

    ended = train(tmp_path, assets, when=[(is_at_step_2, {"type": "stacks"})], hyperparameters={"max_steps": "60"})

    assert ended.of_type("hello")[0]["dumps"] is True
    stacks = (tmp_path / "run" / "stacks" / "rank-0.txt").read_text()
    assert "Current thread" in stacks
    assert "in _run_epoch" in stacks
    assert ended.result["step"] == 60


def test_bad_record_is_named(tmp_path, assets):
    path = tmp_path / "bad.jsonl"
    path.write_text(json.dumps({"text": "fine"}) + "\n" + '{"txet": "typo"}\n')

    ended = train(tmp_path, assets, data_paths=[str(path)])

    (error,) = ended.of_type("error")
    assert ended.exit_codes == [1]
    assert error["error_type"] == "DATA_INVALID"
    assert "bad.jsonl line 2" in error["message"]
    assert "Traceback" in error["stack"]
