"""A custom script's way through the real system."""

import contextlib
import hashlib
import json
import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import Celery
from celery.result import AsyncResult

from tests.systems.installations import counting_job, running_system, steps_said
from tests.systems.servers import PostgresServer
from tests.systems.system import START_SECONDS, System, wait_for


@pytest.fixture(scope="module")
def on_postgresql(
    tmp_path_factory: pytest.TempPathFactory,
    postgres_server: PostgresServer,
    migrated_postgres: str,
    owned_pids: set[int],
) -> Iterator[System]:
    """One with `n1`, to which tests add nodes that declare devices."""
    postgres_server.clone(migrated_postgres, "custom_jobs")
    url, folder = postgres_server.url("custom_jobs"), tmp_path_factory.mktemp("on_postgresql")
    with running_system(folder, owned_pids, "n1", TRAINYARD_DATABASE_URL=url) as system:
        yield system
    postgres_server.execute("DROP DATABASE custom_jobs WITH (FORCE)")


@pytest.mark.long
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_a_custom_job_runs_to_its_end(database: str, request: pytest.FixtureRequest) -> None:
    system: System = request.getfixturevalue("on_postgresql" if database == "postgresql" else "shared_system")

    job_id = system.submit(counting_job(steps=30, step_seconds=0.02, labels={"team": "tests"}))
    job = system.wait_for_status(job_id, "COMPLETED")

    saving = ["CHECKPOINTING", "TRAINING"] * 3
    walked = ["PENDING", "QUEUED", "SCHEDULING", "PREPARING", "TRAINING", *saving, "EXPORTING", "COMPLETED"]
    assert system.statuses(job_id) == walked
    assert (job["progress"], job["current_step"], job["total_steps"], job["attempt"]) == (1.0, 30, 30, 1)
    assert job["latest_metrics"]["loss"] == pytest.approx(1 / 30)
    assert [s for s, _ in steps_said(system.log_lines(job_id))] == list(range(1, 31))
    checkpoints = system.get(f"/v1/jobs/{job_id}/checkpoints")["checkpoints"]
    assert [c["step"] for c in checkpoints] == [10, 20, 30]
    series = system.get(f"/v1/jobs/{job_id}/metrics")["series"]["loss"]
    assert [point[0] for point in series] == list(range(1, 31))
    artifacts = system.get(f"/v1/jobs/{job_id}/artifacts")["artifacts"]
    assert [a["path"] for a in artifacts] == ["answer.txt"]
    assert system.download(f"/v1/jobs/{job_id}/artifacts/answer.txt") == b"counted to 30\n"
    report = system.get(f"/v1/jobs/{job_id}/report")
    assert (report["status"], report["steps"], report["attempts"]) == ("SUCCESS", 30, 1)
    assert report["compute_time_ms"] > 500
    wait_for(lambda: not system.processes_of(job_id), seconds=5, what="no process of the job left")
    assert not list((system.data_dir / "run" / "jobs").glob(f"{job_id}/*")), "the run directory is gone"


@pytest.mark.long
def test_cancel_while_training(shared_system: System) -> None:
    system = shared_system
    job_id = system.submit(counting_job(steps=5000, step_seconds=0.05))
    system.wait_for_step(job_id, 25)

    status, body = system.call("POST", f"/v1/jobs/{job_id}/cancel", {"reason": "enough"})
    wait_for(lambda: not system.processes_of(job_id), seconds=5, what="no process of the job left")
    job = system.wait_for_status(job_id, "CANCELLED", seconds=5)

    assert (status, body["data"]["requested"] in ("cancel", None)) == (200, True)
    assert job["finished_at"] is not None
    steps = [c["step"] for c in system.get(f"/v1/jobs/{job_id}/checkpoints")["checkpoints"]]
    assert steps
    # Of a job that was quicker than its cancellation the oldest are gone.
    assert steps == list(range(steps[0], steps[-1] + 1, 10))
    assert system.get(f"/v1/jobs/{job_id}/report")["status"] == "CANCELLED"


@pytest.mark.long
def test_a_script_that_fails_tells_why(shared_system: System) -> None:
    system = shared_system
    (system.inputs / "broken.py").write_text("print('before')\nraise RuntimeError('the reason')\n")
    document = counting_job()
    document["training_config"]["framework"]["custom_script_path"] = "broken.py"

    job_id = system.submit(document)
    job = system.wait_for_status(job_id, "FAILED")

    assert job["error_type"] == "SCRIPT_ERROR"
    assert "before" in system.log_lines(job_id)
    assert any("the reason" in line for line in system.log_lines(job_id))
    assert len(system.get(f"/v1/jobs/{job_id}/attempts")["attempts"]) == 1


def files_below(directory: Path) -> list[Path]:
    """Directories of ended attempts are removed meanwhile, where `rglob` would raise."""
    return [Path(folder, name) for folder, _, names in os.walk(directory) for name in names]


def content(path: Path) -> bytes:
    with contextlib.suppress(FileNotFoundError):
        return path.read_bytes() if path.is_file() else b""
    return b""


@pytest.mark.long
def test_files_of_a_document_are_for_the_job_alone(shared_system: System) -> None:
    system = shared_system
    (system.inputs / "reads.py").write_text(
        "import hashlib, os\n"
        "text = open('/secrets/token').read()\n"
        "print(text, hashlib.sha256(text.encode()).hexdigest(), oct(os.stat('/secrets/token').st_mode))\n"
    )
    document = counting_job()
    document["training_config"]["framework"]["custom_script_path"] = "reads.py"
    files = [{"name": "token", "content": "swordfish-7"}]
    document["resource_config"] |= {"mounts": [{"path": "/secrets", "type": "files", "files": files}]}

    job_id = system.submit(document)
    system.wait_for_status(job_id, "COMPLETED")

    digest = hashlib.sha256(b"swordfish-7").hexdigest()
    assert system.log_lines(job_id) == [f"*** {digest} 0o100400"]
    (mount,) = system.get(f"/v1/jobs/{job_id}")["resource_config"]["mounts"]
    assert mount["files"] == [{"name": "token", "content": "***"}]
    assert [path for path in files_below(system.data_dir) if b"swordfish-7" in content(path)] == []


@pytest.mark.long
def test_jobs_wait_for_devices_and_run_by_priority(shared_system: System) -> None:
    system = shared_system
    first = system.submit(counting_job(steps=6000, step_seconds=0.1, ranks=2))
    system.wait_for_step(first, 1)

    low = system.submit(counting_job(steps=3, ranks=2, name="low"))
    high = system.submit(counting_job(steps=3, ranks=2, name="high", scheduling_config={"priority": 9}))
    urgent = system.wait_for_status(high, "QUEUED")
    waiting = wait_for(
        lambda: job if (job := system.job(low))["pending_reason"] else None, seconds=5, what="a reason for the other"
    )
    system.call("POST", f"/v1/jobs/{first}/cancel")
    for job_id in (low, high):
        system.wait_for_status(job_id, "COMPLETED")

    assert [job["queue_position"] for job in (urgent, waiting)] == [1, 2]
    assert waiting["status"] == "QUEUED"
    assert "needs 2 CPU slots on one node; free: 0 on n1" in waiting["pending_reason"]
    assert system.job(high)["started_at"] < system.job(low)["started_at"]


def has_node(system: System, name: str) -> bool:
    return name in {node["name"] for node in system.get("/v1/nodes")["nodes"]}


@pytest.mark.long
def test_declared_devices_run_on_the_cpu_and_match_as_gpus(on_postgresql: System, owned_pids: set[int]) -> None:
    system = on_postgresql
    config = system.data_dir / "gpu1.toml"
    config.write_text('labels = ["zone-a"]\n\n[[devices]]\ntype = "A100"\nmemory_mb = 81920\ncount = 2\n')
    system.start_node("gpu1", config=config)
    owned_pids.add(system.pid("node-gpu1"))
    wait_for(lambda: has_node(system, "gpu1"), seconds=START_SECONDS, what="its node")

    document = counting_job(steps=3, resource_config={"gpu_count": 2, "gpu_type": "A100-80GB"})
    job = system.wait_for_status(system.submit(document), "COMPLETED")

    assert job["node_names"] == ["gpu1"]


@pytest.mark.long
def test_two_halves_of_a_device_run_at_the_same_time(on_postgresql: System, owned_pids: set[int]) -> None:
    system = on_postgresql
    config = system.data_dir / "gpu2.toml"
    config.write_text('[[devices]]\ntype = "H100"\nmemory_mb = 81920\n')
    system.start_node("gpu2", config=config)
    owned_pids.add(system.pid("node-gpu2"))
    wait_for(lambda: has_node(system, "gpu2"), seconds=START_SECONDS, what="its node")
    half = counting_job(steps=5000, step_seconds=0.05, resource_config={"gpu_fraction": 0.5, "gpu_type": "H100"})

    jobs = [system.submit(half)]
    system.wait_for_step(jobs[0], 1)
    jobs.append(system.submit(half))
    system.wait_for_step(jobs[1], 1)
    (system.inputs / "share.py").write_text("import os\nprint('share', os.environ['TRAINYARD_GPU_MEMORY_FRACTION'])\n")
    half["training_config"]["framework"]["custom_script_path"] = "share.py"
    third = system.submit(half)
    (device,) = system.get("/v1/nodes/gpu2")["devices"]
    waiting = wait_for(
        lambda: job["pending_reason"] if (job := system.job(third)) else None, seconds=5, what="a reason for the third"
    )

    running = [(job["status"], job["attempt"]) for job in map(system.job, jobs)]
    assert set(running) <= {("TRAINING", 1), ("CHECKPOINTING", 1)}  # it saves every tenth step
    assert device["share_in_use"] == 1.0
    assert waiting == "needs 0.5 of 1 h100 on one node; free: nothing on gpu2"
    system.call("POST", f"/v1/jobs/{jobs[0]}/cancel", {})
    wait_for(lambda: "share 0.5" in system.log_lines(third), seconds=20, what="the third on the device")
    system.call("POST", f"/v1/jobs/{jobs[1]}/cancel", {})
    for job_id in jobs:
        system.wait_for_status(job_id, "CANCELLED")


@pytest.mark.long
def test_states_are_mirrored_for_celery_clients(shared_system: System) -> None:
    system = shared_system
    app = Celery(broker=system.redis.url, backend=system.redis.url)
    job_id = system.submit(counting_job(steps=5000, step_seconds=0.05))

    wait_for(lambda: AsyncResult(job_id, app=app).state == "TRAINING", seconds=30, what="TRAINING mirrored")
    app.control.revoke(job_id)
    wait_for(lambda: AsyncResult(job_id, app=app).state == "REVOKED", seconds=15, what="REVOKED mirrored")

    assert system.job(job_id)["status"] == "CANCELLED"
    app.close()


@pytest.mark.long
def test_log_and_event_streams_end_with_the_job(shared_system: System) -> None:
    system = shared_system
    job_id = system.submit(counting_job(steps=20, step_seconds=0.05))

    request = urllib.request.Request(
        f"http://127.0.0.1:{system.port}/v1/jobs/{job_id}/logs",
        headers={"Authorization": f"Bearer {system.key}", "Accept": "text/event-stream"},
    )
    with urllib.request.urlopen(request, timeout=60) as stream:
        data = [line[6:].strip().decode() for line in stream if line.startswith(b"data: ")]

    assert data[-1] == "[DONE]"
    said = steps_said([json.loads(d)["line"] for d in data[:-1]])
    assert [s for s, _ in said] == list(range(1, 21))
