"""One training in several vocabularies at once, by clients that know only their own."""

import hashlib
import json
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from google.protobuf.message import Message

from app.compat.cyxwiz import messages_pb2 as pb
from tests.system import System

M = TypeVar("M", bound=Message)
CYXWIZ = "/compat/cyxwiz/v1"
BINARY = "application/x-protobuf"


def cyxwiz(system: System, method: str, path: str, answer: type[M], message: Message | None = None) -> M:
    """What a client does that has compiled our messages."""
    url, sent = f"http://127.0.0.1:{system.port}{CYXWIZ}{path}", message.SerializeToString() if message else None
    headers = {"Authorization": f"Bearer {system.key}", "Content-Type": BINARY, "Accept": BINARY}
    request = urllib.request.Request(url, method=method, data=sent, headers=headers)
    with urllib.request.urlopen(request, timeout=30) as response:
        return answer.FromString(response.read())


@pytest.mark.long
@pytest.mark.timeout(300)
def test_job_of_a_cyxwiz_client_is_paused_natively_and_goes_on_to_its_report(
    make_system: Callable[..., System], assets: dict[str, str]
) -> None:
    system = make_system(TRAINYARD_STORAGE_ROOTS=str(Path(assets["model"]).parent)).start("n1")
    parts = {
        "training_config": {"base_model": {"model_id": assets["model"]}, "hyperparameters": {"max_steps": "40"}},
        "data_config": {"max_seq_length": 64},
        "output_config": {"checkpoint": {"save_steps": 10}},
    }
    config = pb.JobConfig(
        job_id="docstrings", job_type=pb.TRAINING, model_config=json.dumps(parts), dataset_uri=assets["train"],
        epochs=1, batch_size=4, learning_rate=1e-3, required_device=pb.CPU, priority=7, timeout_seconds=600,
    )  # fmt: skip

    made = cyxwiz(system, "POST", "/jobs", pb.SubmitJobResponse, config)
    job_id = cyxwiz(system, "GET", f"/jobs/{made.job_id}", pb.JobStatus).trainyard_job_id
    system.wait_for_step(job_id, 12, seconds=240)
    running = cyxwiz(system, "GET", f"/jobs/{made.job_id}/progress", pb.ProgressUpdate)
    system.call("POST", f"/v1/jobs/{job_id}/pause")
    system.wait_for_status(job_id, "PAUSED")
    paused = cyxwiz(system, "GET", f"/jobs/{made.job_id}", pb.JobStatus)
    cyxwiz(system, "POST", f"/jobs/{made.job_id}/resume", pb.JobStatus, pb.ResumeRequest())
    system.wait_for_status(job_id, "COMPLETED", seconds=200)
    ended = cyxwiz(system, "GET", f"/jobs/{made.job_id}", pb.JobStatus)

    assert 0.25 < running.progress < 1
    assert running.metrics["loss"] > 0
    assert running.memory_used_mb > 100
    assert (paused.status, paused.config.priority) == (pb.JobStatus.PAUSED, 7)
    assert ended.status == pb.JobStatus.COMPLETED
    report = cyxwiz(system, "GET", f"/jobs/{made.job_id}/report", pb.CompletionReport)
    assert report.status == pb.SUCCESS
    assert report.compute_time_ms > 0
    files = system.get(f"/v1/jobs/{job_id}/report")["weight_files"]
    weights = b"".join(system.download(f"/v1/jobs/{job_id}/artifacts/{name}") for name in files)
    assert report.model_hash == hashlib.sha256(weights).hexdigest()
