"""Batches under the real supervisor and sandbox: whatever is killed, each record is answered once, in equal bytes."""

import hashlib
import json
import os
import shutil
import signal
from typing import Any

import pytest

from app.domain.lifecycle.states import JobState
from app.models import Artifact, Job, Shard
from app.services.attempts import leases
from app.services.jobs import reports
from app.services.jobs.control import requests as control_requests
from tests.builders.factories import make_job
from tests.builders.shards import batch_document
from tests.systems.supervising import World, environment, rows

RECORDS, SHARD = 40, 4


@pytest.fixture
def world(tmp_path, sqlite_url, assets, forked_supervisors, forked_agents):
    """A node in miniature that has the small model, and prompts of different lengths."""
    made = World(tmp_path, sqlite_url, spawn=forked_supervisors.spawn)
    forked_agents.serve(made.data_dir)
    shutil.copytree(assets, tmp_path / "mine" / "demo")
    prompts = ({"id": f"r{i}", "prompt": "a word " * (1 + i % 7)} for i in range(RECORDS))
    (tmp_path / "mine" / "prompts.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in prompts))
    yield made
    made.close()


def submit(
    world: World, *, ranks: int = 1, model_id: str = "demo/model", data: str = "prompts.jsonl", **inference: Any
) -> str:
    task = {"type": "generate", "max_new_tokens": 24, "temperature": 0.8, "seed": 11}
    document = batch_document(
        shard_records=SHARD,
        inference={"task": task, **inference},
        training_config={"base_model": {"model_id": model_id, "dtype": "float32"}},
        data_config={"sources": [{"path": data, "format": "jsonl"}]},
        resource_config={"gpu_count": ranks},
    )
    with world.db.write() as session:
        return make_job(session, document=document, max_retries=3).id


def start(world: World, **options: Any) -> str:
    job_id = submit(world, **options)
    world.take_up(job_id, ranks=options.get("ranks", 1))
    return job_id


def await_shards(world: World, job_id: str, count: int) -> None:
    world.wait(lambda: len(rows(world, Shard, job_id=job_id)) >= count, 60, job_id)


def finish(world: World, job_id: str, **dispatched: int) -> Job:
    """The job at its end, after as many attempts on this node as it takes."""
    while (job := world.wait_for_end(job_id, 90)).state is JobState.QUEUED:
        world.take_up(job_id, **dispatched)
    assert job.state is JobState.COMPLETED, world.describe(job_id)
    return job


def output(world: World, job_id: str) -> dict[str, str]:
    """Digest of each file of the result."""
    stored = world.storage.local_path(f"jobs/{job_id}/artifacts")
    assert stored is not None
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in stored.iterdir()}
    assert found == {each.path: each.sha256 for each in rows(world, Artifact, job_id=job_id) if "/" not in each.path}
    return found


def indices(world: World, job_id: str) -> list[int]:
    stored = world.storage.local_path(f"jobs/{job_id}/artifacts")
    assert stored is not None
    parts = sorted(stored.glob("part-*.jsonl"))
    return [json.loads(line)["index"] for part in parts for line in part.read_text().splitlines()]


def ranks_of(world: World, job_id: str, attempt: int) -> list[int]:
    return [pid for pid in world.processes(job_id, attempt) if any(v.startswith(b"RANK=") for v in environment(pid))]


@pytest.fixture
def undisturbed(world):
    """The result of a run that nothing happened to."""
    job_id = start(world)
    job = finish(world, job_id)
    assert (job.attempt, job.current_step, job.total_steps, job.progress) == (1, RECORDS, RECORDS, 1.0)
    assert world.states(job_id)[-4:] == ["PREPARING", "EVALUATING", "EXPORTING", "COMPLETED"]
    assert indices(world, job_id) == list(range(RECORDS))
    assert job.report is not None
    assert job.report["model_hash"] == ""
    with world.db.read() as session:
        goodput = reports.completion_report(session, session.get_one(Job, job_id)).goodput
    assert goodput is not None
    assert (goodput.productive_seconds > 0, goodput.badput["evaluate_seconds"]) == (True, 0.0)
    return output(world, job_id)


def kill_supervisor(world: World, job_id: str) -> None:
    """Kill it, and do what its node worker does when it misses it."""
    attempt, pid = world.job(job_id).attempt, world.lease(job_id).supervisor_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    world.wait(lambda: not world.supervisor_alive(job_id, attempt), 20, job_id)
    world.wait(lambda: not world.processes(job_id, attempt), 20, job_id)
    for lease in leases.live(world.db):
        assert leases.revoke(
            world.db, lease, cause="SUPERVISOR_LOST", message="", actor="test", backoff=leases.NO_RETRY
        )


@pytest.mark.long
def test_each_record_is_answered_once_in_the_same_bytes_after_any_kill(world, undisturbed):
    job_id = start(world)
    await_shards(world, job_id, 1)
    for pid in ranks_of(world, job_id, 1):
        os.kill(pid, signal.SIGKILL)
    world.wait(lambda: world.attempt_trains(job_id, 2), 60, job_id)
    await_shards(world, job_id, 3)
    kill_supervisor(world, job_id)

    job = finish(world, job_id)

    assert output(world, job_id) == undisturbed
    shards = rows(world, Shard, job_id=job_id)
    assert sorted(shard.number for shard in shards) == list(range(RECORDS // SHARD))
    assert job.attempt == 3
    assert {shard.attempt for shard in shards} == {1, 2, 3}, "what was stored is not done again"
    starts = [world.attempt(job_id, number).start_step for number in (1, 2, 3)]
    assert starts == [SHARD * sum(shard.attempt < number for shard in shards) for number in (1, 2, 3)]
    assert world.storage.names(f"jobs/{job_id}/shards") == (), "the result has them"


def write_requests(world: World) -> None:
    """Chats for two models, in turn with some that are refused."""
    bodies = ({"messages": [{"role": "user", "content": "a word " * (1 + i % 7)}]} for i in range(RECORDS))
    limits: list[dict[str, Any]] = [
        {"max_tokens": 24, "temperature": 0.8},
        {"max_tokens": 20, "n": 2},
        {"max_tokens": 0},
    ]
    lines: list[dict[str, Any]] = [
        {"custom_id": f"r{i}", "method": "POST", "url": "/v1/chat/completions", "body": {**body, **limits[i % 3]}}
        for i, body in enumerate(bodies)
    ]
    for i, line in enumerate(lines):
        line["body"]["model"] = "other" if i % 10 == 5 else "demo"
    path = world.directory / "mine" / "requests.jsonl"
    path.write_text("".join(f"{json.dumps(each)}\n" for each in lines))


@pytest.mark.long
def test_requests_are_answered_once_in_the_same_bytes_after_any_kill(world):
    write_requests(world)
    task = {"type": "requests", "endpoint": "/v1/chat/completions", "only_model": "demo", "seed": 3, "created": 17}
    options = {"data": "requests.jsonl", "task": task, "on_error": {"action": "record", "max_share": 1.0}}
    undisturbed = start(world, **options)
    finish(world, undisturbed)
    job_id = start(world, **options)
    await_shards(world, job_id, 1)
    for pid in ranks_of(world, job_id, 1):
        os.kill(pid, signal.SIGKILL)
    world.wait(lambda: world.attempt_trains(job_id, 2), 60, job_id)
    await_shards(world, job_id, 3)
    kill_supervisor(world, job_id)

    job = finish(world, job_id)

    assert output(world, job_id) == output(world, undisturbed)
    demo = [i for i in range(RECORDS) if i % 10 != 5]
    assert (job.attempt, job.total_steps) == (3, len(demo))
    answers = answers_of(world, job_id)
    assert [(each["line"], each["custom_id"]) for each in answers] == [(i + 1, f"r{i}") for i in demo]
    assert [each["response"]["status_code"] for each in answers] == [400 if i % 3 == 2 else 200 for i in demo]
    counts = [shard.counts["failed"] for shard in rows(world, Shard, job_id=job_id)]
    assert sum(counts) == sum(i % 3 == 2 for i in demo)

    on_two = start(world, ranks=2, **options)
    finish(world, on_two, ranks=2)

    assert answers_of(world, on_two) == answers


def answers_of(world: World, job_id: str) -> list[dict[str, Any]]:
    stored = world.storage.local_path(f"jobs/{job_id}/artifacts")
    assert stored is not None
    return [json.loads(line) for part in sorted(stored.glob("part-*")) for line in part.read_text().splitlines()]


@pytest.mark.long
def test_paused_job_keeps_its_shards_and_waits_for_no_save(world, undisturbed):
    job_id = start(world)
    await_shards(world, job_id, 2)
    with world.db.write() as session:
        control_requests.request_pause(session, job_id, actor="user-1")
    world.nudge(job_id)
    paused = world.wait_for_end(job_id, 20)
    assert paused.state is JobState.PAUSED, world.describe(job_id)
    before = {shard.number for shard in rows(world, Shard, job_id=job_id)}
    assert world.storage.names(f"jobs/{job_id}/artifacts") == ()

    with world.db.write() as session:
        control_requests.resume(session, job_id, actor="user-1")
    world.take_up(job_id)
    finish(world, job_id)

    assert output(world, job_id) == undisturbed
    assert {shard.number for shard in rows(world, Shard, job_id=job_id, attempt=1)} == before


@pytest.mark.long
def test_damaged_shard_is_done_again_and_replaces_the_old_one(world, undisturbed):
    job_id = start(world)
    await_shards(world, job_id, 2)
    world.request(job_id, "requeue")
    assert world.wait_for_end(job_id, 20).state is JobState.QUEUED, world.describe(job_id)
    damaged = rows(world, Shard, job_id=job_id)[0]
    stored = world.storage.local_path(f"jobs/{job_id}/shards/{damaged.number}-{damaged.fence}")
    assert stored is not None
    next(stored.glob("part-*.jsonl")).write_text("{}")

    world.take_up(job_id)
    finish(world, job_id)

    assert output(world, job_id) == undisturbed
    (again,) = rows(world, Shard, job_id=job_id, number=damaged.number)
    assert (damaged.attempt, again.attempt) == (1, 2)
    (noted,) = [event for event in world.events(job_id) if event.type == "job.resume_fallback"]
    assert f"shard {damaged.number} can't be used and is done again" in noted.message


@pytest.mark.long
def test_two_ranks_share_the_shards_and_write_the_same_bytes(world, undisturbed):
    job_id = start(world, ranks=2)
    await_shards(world, job_id, 1)
    kill_supervisor(world, job_id)

    finish(world, job_id, ranks=2)

    assert {name: sha256 for name, sha256 in output(world, job_id).items() if name.startswith("part-")} == {
        name: sha256 for name, sha256 in undisturbed.items() if name.startswith("part-")
    }


@pytest.mark.long
def test_weights_of_another_job_answer_as_they_do_by_their_path(world, undisturbed):
    with world.db.write() as session:
        trained = make_job(session, state=JobState.COMPLETED).id
        model = world.directory / "mine" / "demo" / "model"
        for path in sorted(path for path in model.iterdir() if path.is_file()):
            sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
            session.add(Artifact(job_id=trained, path=path.name, size_bytes=path.stat().st_size, sha256=sha256))
    world.storage.put_tree(model, f"jobs/{trained}/artifacts", move=False)

    job_id = start(world, model={"job_id": trained}, model_id="none")
    finish(world, job_id)

    found = output(world, job_id)
    assert {name for name in found if found[name] != undisturbed[name]} == {"_manifest.json"}, "which names the model"


@pytest.mark.long
def test_evaluation_stores_each_benchmark_and_completes_with_its_figures(world):
    document = batch_document(
        benchmarks=2,
        inference={
            "benchmarks": [{"name": name, "dataset": 0} for name in ("perplexity", "loss")],
            "require": [{"metric": "loss", "min": 1e9}, {"metric": "perplexity", "min": 1}],
        },
        training_config={"base_model": {"model_id": "demo/model", "dtype": "float32"}},
        data_config={"sources": [{"path": "demo/validation.jsonl", "format": "jsonl", "split": "validation"}]},
    )
    with world.db.write() as session:
        job_id = make_job(session, document=document).id
    world.take_up(job_id)

    job = finish(world, job_id)

    assert (job.current_step, job.total_steps) == (2, 2)
    assert [(row.number, row.records) for row in rows(world, Shard, job_id=job_id)] == [(0, 12), (1, 12)]
    assert "results.json" in output(world, job_id)
    assert job.report is not None
    assert {"bench/perplexity/perplexity", "bench/loss/loss"} <= set(job.report["final_metrics"])
    verdicts = {each["metric"]: (each["value"], each["passed"]) for each in job.report["requirements"]}
    assert verdicts["loss"] == (job.report["final_metrics"]["bench/loss/loss"], False)
    assert verdicts["perplexity"][1]
