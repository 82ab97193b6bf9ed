"""A batch and vectors by the adapter of a real training, through the real system, each answer from its own record."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.systems.forked_agents import ForkedAgents
from tests.systems.system import System

RECORDS = 12


def adapter_training(assets: dict[str, str]) -> dict[str, Any]:
    return {
        "name": "adapter",
        "training_config": {
            "training_type": "LORA",
            "base_model": {"model_id": assets["model"]},
            "framework": {"type": "HF_TRAINER"},
            "hyperparameters": {"max_steps": "4", "lora_r": "4"},
        },
        "data_config": {"sources": [{"path": assets["train"]}], "max_seq_length": 64, "batch_size": 4},
        "resource_config": {"gpu_count": 1, "device_type": "cpu"},
    }


def inference(job_id: str, records: Path, **changes: Any) -> dict[str, Any]:
    return {
        "name": "use",
        "model": {"job_id": job_id},
        "data_config": {"sources": [{"path": str(records)}]},
        "resource_config": {"device_type": "cpu"},
        **changes,
    }


def completed(system: System, body: dict[str, Any]) -> dict[str, Any]:
    status, answer = system.call("POST", "/v1/inference", body)
    assert status == 201, answer
    job_id = answer["data"]["job_id"]
    system.wait_for_status(job_id, "COMPLETED", seconds=240)
    return dict(system.get(f"/v1/inference/{job_id}"))


def lines_of(system: System, job_id: str) -> list[dict[str, Any]]:
    paths = [each["path"] for each in system.get(f"/v1/jobs/{job_id}/artifacts")["artifacts"]]
    parts = sorted(path for path in paths if path.startswith("part-"))
    texts = [system.download(f"/v1/jobs/{job_id}/artifacts/{part}").decode() for part in parts]
    assert "_manifest.json" in paths
    return [json.loads(line) for text in texts for line in text.splitlines()]


@pytest.mark.long
@pytest.mark.timeout(500)
def test_adapter_of_a_job_answers_and_embeds_every_record(
    make_system: Callable[..., System], forked_agents: ForkedAgents, assets: dict[str, str], tmp_path: Path
) -> None:
    records = tmp_path / "records.jsonl"
    rows = [{"id": f"r{n}", "prompt": f"def f{n}(x):", "text": f"number {n}"} for n in range(RECORDS)]
    records.write_text("".join(json.dumps(row) + "\n" for row in rows))
    roots = f"{Path(assets['model']).parent}:{tmp_path}"
    system = make_system(TRAINYARD_STORAGE_ROOTS=roots).start("n1")
    forked_agents.serve_system(system)
    source = system.submit(adapter_training(assets))
    system.wait_for_status(source, "COMPLETED", seconds=240)

    task = {"max_new_tokens": 4}
    batch = completed(system, inference(source, records, task=task, output={"shard_records": 5}))
    vectors = completed(system, inference(source, records, kind="features", output={"format": "jsonl"}))

    assert (batch["adapter"], batch["records"], batch["total_records"], batch["shards"]) == (True, RECORDS, RECORDS, 3)
    assert (batch["failed_records"], batch["total_shards"]) == (0, 3)
    assert "EVALUATING" in system.statuses(batch["job_id"])
    answers = lines_of(system, batch["job_id"])
    assert [(row["index"], row["id"]) for row in answers] == [(n, f"r{n}") for n in range(RECORDS)]
    assert all(isinstance(row["output"], str) and 1 <= row["completion_tokens"] <= 4 for row in answers)
    embedded = lines_of(system, vectors["job_id"])
    assert len({tuple(row["embedding"]) for row in embedded}) == RECORDS
