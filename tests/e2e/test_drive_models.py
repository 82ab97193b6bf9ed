"""A model, its data and its result in directories of a drive service, through the whole system."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.shares import TOKEN, Share, running_share
from tests.systems.forked_agents import ForkedAgents
from tests.systems.system import System


@pytest.fixture
def share(demo_assets: Path) -> Iterator[Share]:
    """With the demo's model, and a few records."""
    with running_share() as share:
        share.files |= {
            f"/shares/team/models/tiny/{path.name}": path.read_bytes() for path in (demo_assets / "model").iterdir()
        }
        share.files["/shares/team/data/train.jsonl"] = b'{"text": "a line of text"}\n' * 16
        yield share


def sft_job(model: str, **output: Any) -> dict[str, Any]:
    return {
        "name": "drive",
        "training_config": {
            "training_type": "SFT",
            "base_model": {"model_id": model, "source": "scaidrive"},
            "framework": {"type": "HF_TRAINER"},
            "hyperparameters": {"max_steps": "2"},
        },
        "data_config": {"sources": [{"path": "scaidrive://team/data/"}], "max_seq_length": 32, "batch_size": 2},
        "resource_config": {"gpu_count": 1, "device_type": "cpu"},
        "output_config": output,
    }


def submit(system: System, document: dict[str, Any]) -> str:
    status, body = system.call("POST", "/v1/jobs", document, X_ScaiDrive_Token=TOKEN)
    assert status == 201, body
    return str(body["data"]["job_id"])


def preflight(system: System, job_id: str) -> dict[str, Any]:
    events = system.get(f"/v1/jobs/{job_id}/events?page_size=100")["events"]
    (event,) = [each for each in events if each["type"] == "job.preflight"]
    return dict(event)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_job_trains_from_directories_of_a_drive_and_another_from_its_result(
    make_system: Callable[..., System], forked_agents: ForkedAgents, share: Share
) -> None:
    system = make_system(TRAINYARD_FETCH_SCAIDRIVE_URL=share.url).start("n1")
    forked_agents.serve_system(system)

    first = submit(system, sft_job("scaidrive://team/models/tiny", output_path="scaidrive://team/tuned"))
    system.wait_for_status(first, "COMPLETED", seconds=120)
    second = submit(system, sft_job("scaidrive://team/tuned/"))
    system.wait_for_status(second, "COMPLETED", seconds=120)
    missing = submit(system, sft_job("scaidrive://team/models/gone"))
    refused = system.wait_for_status(missing, "FAILED", seconds=60)

    assert system.get(f"/v1/jobs/{first}/report")["model_uri"] == "scaidrive://team/tuned"
    assert [preflight(system, job_id)["reason"] for job_id in (first, second)] == ["passed", "passed"]
    weights = share.below("team/tuned")["model.safetensors"]
    assert weights != share.below("team/models/tiny")["model.safetensors"]
    assert refused["error_type"] == "MODEL_NOT_FOUND"
    assert "no such directory" in refused["error_message"]
