"""A batch and a features job while each process is killed: each record is answered once, in a quiet run's bytes."""

import contextlib
import json
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.faults.cluster import SHORT, Cluster, eventually
from tests.faults.crash_points import Point
from tests.systems.forked_agents import ForkedAgents
from tests.systems.system import wait_for

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

# Each kills the process that reaches it.
SUBMITTED, PLACED, CLAIMED, STORED, RECORDED, EXPORTING = POINTS = (
    Point("submitted", "i1", "app.services.jobs.submission:store", "after"),
    Point("placed", "i2", "app.services.scheduling.placement:place", "after"),
    Point("claimed", "i3", "workers.node.spawn_supervisor:_is_spawned", "before"),
    Point("shard-stored", "i4", "app.services.attempts.shards:record", "before"),
    Point("shard-recorded", "i5", "app.services.attempts.shards:record", "after"),
    Point("exporting", "i6", "workers.supervisor.recording.model_export:store_model", "before"),
)
RECORDS, SHARD = 128, 8
# Nothing here waits for a lease to run out, and a busy machine should cost no attempt.
PATIENT = {**SHORT, "TRAINYARD_LEASE_TTL_SECONDS": "20", "TRAINYARD_LEASE_FENCE_SECONDS": "15"}


@pytest.fixture
def cluster(tmp_path: Path, demo_assets: Path, forked_agents: ForkedAgents) -> Iterator[Cluster]:
    """One node, whose ranks are forked, so that each of many attempts has its imports behind it."""
    settings = {**PATIENT, "TRAINYARD_STORAGE_ROOTS": f"{tmp_path}:{demo_assets}"}
    made = Cluster(tmp_path / "system", settings, slots=2, points=POINTS)
    forked_agents.serve(made.node_dir("n1"))
    records = ({"id": f"r{n}", "prompt": "a word " * (1 + n % 7), "text": f"number {n}"} for n in range(RECORDS))
    (tmp_path / "records.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in records))
    try:
        yield made.start("n1")
    finally:
        made.stop()


def documents(cluster: Cluster, assets: Path) -> list[dict[str, Any]]:
    """A sampled batch and vectors in parquet, each of several shards."""
    both = {
        "model": {"model_uri": str(assets / "model"), "dtype": "float32"},
        "data_config": {"sources": [{"path": str(cluster.folder.parent / "records.jsonl")}]},
        "resource_config": {"device_type": "cpu"},
        "max_retries": 8,
    }
    output = {"keep_columns": ["id"], "shard_records": SHARD}
    task = {"type": "generate", "max_new_tokens": 40, "temperature": 0.8, "seed": 11}
    return [
        {**both, "name": "batch", "task": task, "output": output},
        {**both, "name": "features", "kind": "features", "output": {**output, "format": "parquet"}},
    ]


def submit(cluster: Cluster, document: dict[str, Any], key: str) -> str:
    """Again with the same key where the API dies over it."""
    ask = partial(cluster.call, "POST", "/v1/inference", document, Idempotency_Key=key)
    with contextlib.suppress(OSError):
        ask()
    cluster.revive()
    status, body = eventually(ask)
    assert status in (200, 201), body
    return str(body["data"]["job_id"])


def output_of(cluster: Cluster, job_id: str) -> dict[str, bytes]:
    listed = cluster.get(f"/v1/jobs/{job_id}/artifacts")["artifacts"]
    return {each["path"]: cluster.download(f"/v1/jobs/{job_id}/artifacts/{each['path']}") for each in listed}


def wait_for_shards(cluster: Cluster, job_id: str, count: int) -> None:
    def stored() -> bool:
        cluster.revive()
        with contextlib.suppress(OSError):
            status, body = cluster.call("GET", f"/v1/inference/{job_id}")
            return bool(status == 200 and body["data"]["shards"] >= count)
        return False

    wait_for(stored, seconds=90, what=f"{count} shards of {job_id}")


def kill_at(cluster: Cluster, point: Point) -> None:
    """Wait until a process has died at the point; what is ours starts again meanwhile."""

    def has_died() -> bool:
        cluster.revive()
        return cluster.points.fired(point.name) is not None

    wait_for(has_died, seconds=90, what=f"{point.name} reached")


def kill_ranks(cluster: Cluster, job_id: str) -> None:
    for rank in cluster.ranks_of(job_id):
        with contextlib.suppress(psutil.NoSuchProcess):
            rank.kill()


def test_each_record_is_answered_once_whichever_process_is_killed(cluster: Cluster, demo_assets: Path) -> None:
    quiet = [submit(cluster, document, f"quiet-{n}") for n, document in enumerate(documents(cluster, demo_assets))]
    for job_id in quiet:
        cluster.wait_for_end(job_id, seconds=120)

    cluster.kill("coordinator")  # nothing starts before its moments are armed
    cluster.points.arm(SUBMITTED.name)
    batch, features = (submit(cluster, each, f"killed-{n}") for n, each in enumerate(documents(cluster, demo_assets)))
    for point, job_id in ((PLACED, ""), (CLAIMED, ""), (STORED, batch), (RECORDED, features), (EXPORTING, batch)):
        cluster.points.arm(point.name, job_id=job_id)
    cluster.start_coordinator()
    for point in (SUBMITTED, PLACED, CLAIMED, STORED):  # API, coordinator, node worker, supervisor
        kill_at(cluster, point)
    wait_for_shards(cluster, batch, 2)
    kill_ranks(cluster, batch)
    wait_for_shards(cluster, batch, 5)
    for name in ("node-n1", "coordinator", "api"):
        cluster.kill(name)
    cluster.redis.stop(signal.SIGKILL)
    cluster.redis.start()
    cluster.start_processes()
    for point in (RECORDED, EXPORTING):
        kill_at(cluster, point)

    for job_id, undisturbed in zip((batch, features), quiet, strict=True):
        job = cluster.wait_for_end(job_id, seconds=120)
        found = output_of(cluster, job_id)
        assert found == output_of(cluster, undisturbed), cluster.story(job_id)
        assert sum(name.startswith("part-") for name in found) == RECORDS // SHARD
        assert json.loads(found["_manifest.json"])["counts"]["records"] == RECORDS
        assert job["attempt"] > 1, "it was disturbed"
        assert cluster.statuses(job_id).count("COMPLETED") == 1
    attempts = cluster.get(f"/v1/jobs/{batch}/attempts")["attempts"]
    assert {each["cause"] for each in attempts} >= {"SUPERVISOR_LOST", "RANK_KILLED", None}, cluster.story(batch)
    assert attempts[-1]["start_step"] == RECORDS, "what was stored is not done again"
    parts = sorted((name, part) for name, part in output_of(cluster, batch).items() if name.startswith("part-"))
    lines = [json.loads(line) for _, part in parts for line in part.splitlines()]
    assert [line["index"] for line in lines] == list(range(RECORDS))
