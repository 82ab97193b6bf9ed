"""Inspection of model and data before a job waits for devices, with real coordinators and models, and on request."""

import functools
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.systems.forked_agents import ForkedAgents
from tests.systems.system import System, wait_for

RECORDS = 60


@pytest.fixture(scope="module")
def system(
    tmp_path_factory: pytest.TempPathFactory, forked_agents: ForkedAgents, demo_assets: Path, owned_pids: set[int]
) -> Iterator[System]:
    """One without nodes, where what is admitted stays queued, and with a hub at an address where no server listens."""
    made = System(tmp_path_factory.mktemp("preflight"), HF_ENDPOINT="http://127.0.0.1:1")
    shutil.copytree(demo_assets, made.inputs, dirs_exist_ok=True)
    lines = (made.inputs / "train.jsonl").read_text().splitlines(keepends=True)
    (made.inputs / "train.jsonl").write_text("".join(lines[:RECORDS]))
    try:
        made.start()
        forked_agents.serve_system(made)
        owned_pids.update({made.redis.pid, *(made.pid(name) for name in ("api", "coordinator"))})
        yield made
    finally:
        made.stop()


def document(data: str = "train.jsonl", model: str = "model", **data_config: Any) -> dict[str, Any]:
    return {
        "name": "preflight",
        "training_config": {
            "training_type": "SFT",
            "base_model": {"model_id": model},
            "framework": {"type": "HF_TRAINER"},
        },
        "data_config": {"sources": [{"path": data}], "max_seq_length": 64, **data_config},
        "resource_config": {"gpu_count": 1, "device_type": "cpu"},
    }


def preflight(system: System, job_id: str) -> dict[str, Any]:
    events = system.get(f"/v1/jobs/{job_id}/events?page_size=100")["events"]
    (event,) = [each for each in events if each["type"] == "job.preflight"]
    return dict(event)


def copy(system: System, name: str, text: str | bytes) -> str:
    data = text.encode() if isinstance(text, str) else text
    (system.inputs / name).write_bytes(data)
    return name


def inspections(system: System) -> list[psutil.Process]:
    """The inspection processes of this installation's coordinator."""
    coordinator = psutil.Process(system.pid("coordinator"))
    return [each for each in coordinator.children() if "workers.prepare.preflight" in each.cmdline()]


def stop_inspection(system: System) -> psutil.Process:
    """Suspend the running inspection, or the next one to start."""
    inspection = wait_for(
        lambda: next((each for each in inspections(system) if each.children()), None), seconds=60, what="an inspection"
    )
    inspection.send_signal(signal.SIGSTOP)
    return inspection


def is_over(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


@pytest.mark.long
def test_what_is_found_out_stands_in_an_event_and_is_remembered(system: System) -> None:
    job_id = system.submit(document(validation_split=0.1))
    system.wait_for_status(job_id, "QUEUED", seconds=60)
    event = preflight(system, job_id)

    began = time.monotonic()
    again = system.submit(document(validation_split=0.1))
    system.wait_for_status(again, "QUEUED", seconds=5)
    remembered_seconds = time.monotonic() - began

    (source,) = event["data"]["sources"]
    assert event["reason"] == "passed"
    assert "to measure on" in event["message"]
    assert source["columns"] == ["completion", "prompt"]
    assert (source["records_read"], source["complete"]) == (RECORDS, True)
    assert "first_records" not in source  # events are no place for data
    assert 0 < source["lengths"]["0.5"] <= source["lengths"]["max"]
    assert event["data"]["batch"]["shape"][0] == 8
    assert event["data"]["model"]["model_type"] == "llama"
    assert preflight(system, again)["data"]["remembered"] is True
    assert remembered_seconds < 1.5
    assert system.statuses(job_id) == ["PENDING", "QUEUED"]


@pytest.mark.long
def test_a_broken_record_fails_the_job_without_a_device(system: System) -> None:
    lines = (system.inputs / "train.jsonl").read_text().splitlines(keepends=True)
    data = copy(system, "broken.jsonl", "".join(lines[:40]) + '{"prompt": "def f')

    job = system.wait_for_status(system.submit(document(data)), "FAILED", seconds=60)

    assert job["error_type"] == "DATA_INVALID"
    assert "broken.jsonl line 41" in job["error_message"]
    assert job["attempt"] == 0


@pytest.mark.long
def test_a_model_with_cut_off_weights_fails_the_job(system: System) -> None:
    shutil.copytree(system.inputs / "model", system.inputs / "cut")
    weights = system.inputs / "cut" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])

    job = system.wait_for_status(system.submit(document(model="cut")), "FAILED", seconds=60)

    assert job["error_type"] == "MODEL_NOT_FOUND"
    assert "model.safetensors" in job["error_message"]


@pytest.mark.long
def test_cancelling_a_job_under_inspection_works_at_once_and_ends_the_inspection(system: System) -> None:
    shutil.copy(system.inputs / "train.jsonl", system.inputs / "cancelled.jsonl")
    job_id = system.submit(document("cancelled.jsonl"))
    inspection = stop_inspection(system)
    assert "being inspected" in system.job(job_id)["pending_reason"]

    status, body = system.call("POST", f"/v1/jobs/{job_id}/cancel")

    assert (status, body["data"]["status"]) == (200, "CANCELLED")
    wait_for(lambda: is_over(inspection), seconds=8, what="the end of the inspection")
    assert system.statuses(job_id) == ["PENDING", "CANCELLED"]


@pytest.mark.long
def test_an_inspection_ends_with_its_coordinator_and_the_next_one_begins_anew(
    system: System, owned_pids: set[int]
) -> None:
    shutil.copy(system.inputs / "train.jsonl", system.inputs / "lost.jsonl")
    job_id = system.submit(document("lost.jsonl"))

    for number in (signal.SIGTERM, signal.SIGKILL):
        inspection = stop_inspection(system)
        system.kill("coordinator", number)
        wait_for(
            functools.partial(is_over, inspection), seconds=5, what="the end of the inspection with its coordinator"
        )
        assert system.job(job_id)["status"] == "PENDING"
        system.start_coordinator()
        owned_pids.add(system.pid("coordinator"))

    system.wait_for_status(job_id, "QUEUED", seconds=60)
    assert preflight(system, job_id)["reason"] == "passed"


@pytest.mark.long
def test_data_is_validated_without_a_job(system: System) -> None:
    training = {"training_type": "LORA", "base_model": {"model_id": "model"}}
    question = {"data_config": document()["data_config"], "training_config": training}

    status, body = system.call("POST", "/v1/data/validate", question, Idempotency_Key="once")
    again = system.call("POST", "/v1/data/validate", question, Idempotency_Key="once")[1]

    assert status == 200, body
    report = body["data"]
    assert (report["valid"], report["errors"], report["left_out"]) == (True, [], [])
    assert report["sources"][0]["columns"] == ["completion", "prompt"]
    assert report["lengths"]["max"] == report["sources"][0]["lengths"]["max"] > 0
    assert again["data"] == report


@pytest.mark.long
def test_data_is_validated_without_a_model(system: System) -> None:
    data = copy(system, "short.csv", "question,answer\na,b\nc\n")
    mapping = {"prompt": "question", "completion": "answer"}
    question = {"data_config": {"sources": [{"path": data}], "preprocess": {"field_mapping": mapping}}}

    report = system.call("POST", "/v1/data/validate", question)[1]["data"]

    assert not report["valid"]
    assert report["errors"][0]["error_type"] == "DATA_INVALID"
    assert "short.csv line 3" in report["errors"][0]["message"]


@pytest.mark.long
def test_what_submit_refuses_is_an_error_with_its_field(system: System) -> None:
    question = {"data_config": {"sources": [{"path": "/etc/passwd"}]}}

    status, body = system.call("POST", "/v1/data/validate", question)

    assert status == 200
    (error,) = body["data"]["errors"]
    assert error["field"] == "data_config.sources.0.path"
    assert not body["data"]["valid"]
    assert system.call("POST", "/v1/data/validate", {"data_config": {"paths": []}})[0] == 422


@pytest.mark.long
def test_a_hub_that_does_not_answer_fails_the_job_by_name_and_without_a_device(system: System) -> None:
    job_id = system.submit(document(model="acme/tiny"))

    job = system.wait_for_status(job_id, "FAILED", seconds=60)

    assert (job["error_type"], job["attempt"]) == ("HUB_UNREACHABLE", 0)
    assert "http://127.0.0.1:1" in job["error_message"]
    assert "HF_ENDPOINT" in job["error_message"]
    assert "may be written to" not in job["error_message"]


@pytest.mark.long
def test_a_repository_that_does_not_answer_fails_the_job_without_a_device(system: System) -> None:
    framework = {
        "type": "CUSTOM",
        "custom_script_path": "train.py",
        "custom_code_dir": f"git+https://no-such-host.invalid/a.git@{'0' * 40}",
    }
    training = {"training_type": "SFT", "base_model": {"model_id": "none"}, "framework": framework}
    job_id = system.submit({**document(), "training_config": training, "data_config": {"sources": []}})

    job = system.wait_for_status(job_id, "FAILED", seconds=60)

    assert (job["error_type"], job["attempt"]) == ("HUB_UNREACHABLE", 0)
    assert "the repository does not answer" in job["error_message"]


@pytest.mark.long
def test_data_is_not_called_checked_where_the_hub_does_not_answer(system: System) -> None:
    training = {"training_type": "SFT", "base_model": {"model_id": "acme/tiny"}}
    question = {"data_config": document()["data_config"], "training_config": training}

    report = system.call("POST", "/v1/data/validate", question)[1]["data"]

    assert (report["errors"], report["sources"]) == ([], [])
    assert report["left_out"][0].startswith(
        "the model and the data, which are inspected together: base model acme/tiny"
    )
