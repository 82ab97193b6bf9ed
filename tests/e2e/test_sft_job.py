"""Supervised fine-tuning of a real small model through the real system."""

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.systems.forked_agents import ForkedAgents
from tests.systems.system import System

REPOSITORY = Path(__file__).parents[2]


def sft_job(assets: dict[str, str], *, steps: int, ranks: int) -> dict[str, Any]:
    return {
        "name": "docstrings",
        "training_config": {
            "training_type": "SFT",
            "base_model": {"model_id": assets["model"]},
            "framework": {"type": "HF_TRAINER"},
            "hyperparameters": {"max_steps": str(steps), "learning_rate": "8e-3", "warmup_steps": "5"},
            "evaluation": {"strategy": "steps", "steps": 20},
        },
        "data_config": {
            "sources": [{"path": assets["train"], "format": "jsonl"}],
            "validation_split": 0.02,
            "max_seq_length": 64,
            "batch_size": 8,
            "seed": 7,
        },
        "resource_config": {"gpu_count": ranks, "device_type": "cpu"},
        "output_config": {
            "output_model_name": "docstrings-v1",
            "checkpoint": {"save_steps": 10, "metric_for_best_model": "eval_loss"},
        },
    }


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_model_comes_out_and_runs_elsewhere(
    make_system: Callable[..., System], forked_agents: ForkedAgents, assets: dict[str, str], tmp_path: Path
) -> None:
    system = make_system(TRAINYARD_STORAGE_ROOTS=str(Path(assets["model"]).parent)).start("n1")
    forked_agents.serve_system(system)

    job_id = system.submit(sft_job(assets, steps=40, ranks=2))
    system.wait_for_step(job_id, 15, seconds=240)
    system.ranks_of(job_id)[0].kill()
    job = system.wait_for_status(job_id, "COMPLETED", seconds=200)

    losses = [point[2] for point in system.get(f"/v1/jobs/{job_id}/metrics?names=loss")["series"]["loss"]]
    assert len(losses) == 40
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])
    assert job["attempt"] == 2
    assert {"EVALUATING", "EXPORTING"} <= set(system.statuses(job_id))
    attempts = system.get(f"/v1/jobs/{job_id}/attempts")["attempts"]
    assert [(a["cause"], a["start_step"] % 10, a["end_step"]) for a in attempts][1] == (None, 0, 40)
    checkpoints = system.get(f"/v1/jobs/{job_id}/checkpoints")["checkpoints"]
    assert [c["step"] for c in checkpoints][-1] == 40
    assert [c["is_best"] for c in checkpoints].count(True) == 1
    assert job["best_checkpoint_id"] in [c["checkpoint_id"] for c in checkpoints]

    report = system.get(f"/v1/jobs/{job_id}/report")
    folder = tmp_path / "model"
    folder.mkdir()
    for artifact in system.get(f"/v1/jobs/{job_id}/artifacts")["artifacts"]:
        content = system.download(f"/v1/jobs/{job_id}/artifacts/{artifact['path']}")
        assert hashlib.sha256(content).hexdigest() == artifact["sha256"]
        (folder / artifact["path"]).write_bytes(content)
    weights = b"".join((folder / name).read_bytes() for name in report["weight_files"])
    assert report["model_hash"] == hashlib.sha256(weights).hexdigest()
    assert "\n# docstrings-v1\n" in (folder / "README.md").read_text()
    generate = [sys.executable, "-m", "examples.generate", "--model", str(folder), "--prompt", "def close(self):"]
    said = subprocess.run(generate, cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=120).stdout
    assert said.strip()


@pytest.mark.long
def test_a_broken_record_is_named(shared_system: System, forked_agents: ForkedAgents, assets: dict[str, str]) -> None:
    system = shared_system
    forked_agents.serve_system(system)
    shutil.copytree(assets["model"], system.inputs / "tiny")
    data = system.inputs / "broken.jsonl"
    data.write_text('{"text": "fine"}\n{"text": 5}\n')
    document = sft_job({"model": "tiny", "train": str(data)}, steps=5, ranks=1)

    job = system.wait_for_status(system.submit(document), "FAILED", seconds=240)

    assert job["error_type"] == "DATA_INVALID"
    assert "broken.jsonl" in job["error_message"]
    assert "2" in job["error_message"]
