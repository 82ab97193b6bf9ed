"""The client against the real API over real HTTP: every call works, and answers hold what the types promise."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from app.domain.lifecycle.states import JobState
from app.models import Artifact, Job, Node
from app.models.base import utc_now
from app.security.permissions import Role
from app.services.lifecycle import transitions
from app.services.telemetry import stored_metrics
from app.services.telemetry.stored_metrics import MetricValue, TelemetryReports
from app.storage.log_writer import LogWriter
from tests.builders.factories import make_attempt, make_checkpoint, make_document, make_job, make_node
from tests.builders.inference_requests import make_batch
from tests.builders.log_blocks import block
from tests.builders.sweeps import make_sweep_document
from tests.systems.apps import Api
from tests.systems.served import Served, serving
from trainyard import records
from trainyard.client import Client, Conflict, InvalidRequest, NotFound, StreamEvent, Unauthenticated

MODEL = b"weights" * 1000
EVALUATION = {
    "model": {"model_uri": "/srv/models/tiny"},
    "benchmarks": [{"name": "loss", "dataset": "/srv/data/train.jsonl"}],
    "resource_config": {"device_type": "cpu"},
}


@pytest.fixture
def served(api: Api) -> Iterator[Served]:
    with serving(api) as served:
        yield served


def assert_is(record: Mapping[str, Any], kind: Any) -> None:
    """The answer has every promised field; a server may send more."""
    assert kind.__required_keys__ <= set(record), kind.__required_keys__ - set(record)


def ran(api: Api) -> str:
    """A job that has ended, with one of everything."""
    with api.db.write() as session:
        job = make_job(session, document=make_document(name="ran"))
        make_attempt(session, job, make_node(session))
        job.status = JobState.TRAINING
        make_checkpoint(session, job)
        sha256 = hashlib.sha256(MODEL).hexdigest()
        session.add(Artifact(job_id=job.id, path="model/a b.bin", size_bytes=len(MODEL), sha256=sha256))
        job_id = str(job.id)
    storage = api.app.extensions["trainyard"].plane.storage
    storage.write(f"jobs/{job_id}/artifacts/model/a b.bin", MODEL)
    LogWriter(storage, job_id, 1).append([block(1, "line 1", "line 2")])
    points = tuple(MetricValue(name="loss", step=step, at=utc_now(), value=1.0) for step in (1, 2))
    stored_metrics.store(
        api.db, job_id=job_id, attempt=1, fence=1, reports=TelemetryReports(progress=None, points=points)
    )
    with api.db.write() as session:
        transitions.transition(session, session.get_one(Job, job_id), JobState.CANCELLED, actor="test")
    return job_id


def data_of(events: Iterator[StreamEvent]) -> list[Any]:
    return [event.data for event in events]


def test_client_leads_a_job_from_dry_run_to_deletion(served: Served):
    client = served.client()

    plan = client.dry_run(make_document())
    submitted = client.submit(make_document(labels={"a": "b"}), idempotency_key="once")
    again = client.submit(make_document(labels={"a": "b"}), idempotency_key="once")
    job_id = submitted.job_id

    assert_is(plan["plan"], records.Plan)
    assert submitted == again
    since = utc_now() - timedelta(days=1)
    assert [job.job_id for job in client.list(labels={"a": "b"}, status=["PENDING"], created_after=since)] == [job_id]
    assert client.change(job_id, priority=8, labels={"c": "d"}).labels == {"c": "d"}
    assert client.get(job_id).data["scheduling_config"]["priority"] == 8
    with pytest.raises(Conflict, match="cannot save"):
        client.checkpoint(job_id)
    with pytest.raises(Conflict):
        client.delete(job_id)
    assert client.cancel(job_id, reason="enough").is_terminal
    assert client.wait(job_id).status == "CANCELLED"
    client.delete(job_id, artifacts=True)
    with pytest.raises(NotFound):
        client.get(job_id)


def test_pause_resume_and_retry(served: Served):
    client = served.client()
    job_id = client.submit(make_document()).job_id
    with served.api.db.write() as session:
        made = make_checkpoint(session, session.get_one(Job, job_id)).id

    assert client.pause(job_id, save_checkpoint=False, force=True).status == "PAUSED"
    assert client.wait_paused(job_id, timeout_seconds=1).status == "PAUSED"
    with pytest.raises(InvalidRequest, match="none was evaluated"):
        client.resume(job_id, from_best=True)
    assert client.resume(job_id, checkpoint_id=made).status == "QUEUED"
    with pytest.raises(Conflict):
        client.retry(job_id)
    client.cancel(job_id)
    child = client.retry(job_id, resources={"gpu_count": 2}, tokens={"user": "token"})

    assert (child.status, child.parent_job_id) == ("PENDING", job_id)
    assert child.data["resource_config"]["gpu_count"] == 2
    assert child.data["training_config"]["resume_from_checkpoint"] == made
    assert client.get(job_id).child_job_ids == [child.job_id]
    assert "resume_from_checkpoint" not in client.retry(job_id, from_start=True).data["training_config"]


def test_a_label_without_a_value_is_a_filter_too(served: Served):
    client = served.client()
    kept = client.submit(make_document(labels={"draft": ""})).job_id
    client.submit(make_document(labels={"draft": "no"}))

    assert [job.job_id for job in client.list(labels={"draft": ""})] == [kept]


def test_client_reads_all_records_of_a_job(served: Served, tmp_path: Path):
    client, job_id = served.client(), ran(served.api)

    assert_is(next(client.events(job_id)), records.Event)
    assert list(client.events(job_id, newest_first=True)) == list(client.events(job_id))[::-1]
    assert client.tensorboard(job_id).keys() == {"url", "token"}
    assert_is(client.metrics(job_id, names=["loss"], since_step=1), records.Metrics)
    assert [line["line"] for line in client.logs(job_id, tail=1)] == ["line 2"]
    assert_is(client.logs(job_id)[0], records.LogLine)
    assert_is(client.checkpoints(job_id)[0], records.Checkpoint)
    assert_is(client.attempts(job_id)[0], records.Attempt)
    assert_is(client.report(job_id), records.Report)
    compared = client.compare([job_id, client.submit(make_document()).job_id], metrics=["loss"], by="seconds")
    assert_is(compared, records.Comparison)
    assert_is(compared["jobs"][0], records.ComparedJob)
    assert compared["metrics"]["loss"]["final"] == [1.0, None]
    assert_is(client.artifacts(job_id)[0], records.Artifact)
    assert client.artifacts(job_id, kind="tensorboard") == []
    assert client.download(job_id, "model/a b.bin", tmp_path / "m").read_bytes() == MODEL


def test_streams_end_with_the_job_and_go_on_after_an_id(served: Served):
    client, job_id = served.client(), ran(served.api)

    events = list(client.follow_events(job_id))

    assert [line["line"] for line in data_of(client.follow_logs(job_id, rank=0))] == ["line 1", "line 2"]
    assert [point["step"] for point in data_of(client.follow_metrics(job_id, names=["loss"]))] == [1, 2]
    assert [event["to_status"] for event in data_of(iter(events))] == ["CANCELLED"]
    assert list(client.follow_events(job_id, last_id=events[-1].id)) == []


def test_client_operates_queues_and_nodes(served: Served):
    client = served.client()
    with served.api.db.write() as session:
        make_node(session, "n1")
    client.submit(make_document())

    assert_is(client.queues.create("fast", max_running_jobs=1), records.Queue)
    assert client.queues.change("fast", paused=True, max_running_jobs=None)["paused"] is True
    assert client.queues.get("fast")["max_running_jobs"] is None
    assert {queue["name"] for queue in client.queues.list()} == {"default", "fast"}
    assert_is(next(client.queues.line(queue="default")), records.QueueEntry)
    assert_is(next(client.nodes.list()), records.Node)
    assert client.nodes.label("n1", ["rack-7"])["admin_labels"] == ["rack-7"]
    assert client.nodes.drain("n1")["status"] in ("draining", "drained")
    assert client.nodes.enable("n1")["status"] == "ready"
    assert client.nodes.get("n1")["devices"][0]["type"] == "cpu"
    assert client.cluster()["nodes"]


def test_client_operates_projects_keys_and_audit(served: Served):
    client = served.client()

    assert_is(client.projects.create("lab", description="d"), records.Project)
    assert client.projects.change("lab", description="e")["description"] == "e"
    made = client.keys.create(role="user", project="lab", name="k", expires_days=1)
    assert client.keys.change(made["key_id"], requests_per_minute=5)["requests_per_minute"] == 5
    rotated = client.keys.rotate(made["key_id"], grace_seconds=0)
    assert_is(rotated, records.NewKey)
    assert_is(client.keys.get(rotated["key_id"]), records.Key)
    assert rotated["key_id"] in {key["key_id"] for key in client.keys.list()}
    assert [project["name"] for project in served.client(rotated["key"]).projects.list()] == ["lab"]
    client.keys.revoke(rotated["key_id"])
    with pytest.raises(Unauthenticated):
        served.client(rotated["key"]).projects.get("lab")
    client.projects.delete("lab")
    assert_is(next(client.audit.list(action="project.delete", after="2020-01-01T00:00:00Z")), records.AuditEntry)


def test_a_key_of_all_projects_acts_in_the_one_it_names(served: Served):
    served.api.make_key(Role.USER, "lab")
    lab, default = served.client(project="lab"), served.client(project="default")

    job_id = lab.submit(make_document()).job_id

    assert lab.get(job_id).project == "lab"
    assert list(default.list()) == []


def test_client_operates_webhooks(served: Served):
    client = served.client()

    hook = client.webhooks.create("https://93.184.215.14/hook", event_types=["job.status"])
    hook_id = hook["webhook_id"]

    assert_is(hook, records.NewWebhook)
    assert client.webhooks.change(hook_id, is_active=True, description="d")["description"] == "d"
    assert_is(client.webhooks.get(hook_id), records.Webhook)
    sent = client.webhooks.test(hook_id)
    assert_is(sent, records.Delivery)
    client.webhooks.redeliver(hook_id, sent["delivery_id"])
    assert len(list(client.webhooks.deliveries(hook_id))) == 2
    client.webhooks.delete(hook_id)
    assert list(client.webhooks.list()) == []


def test_client_reads_tables_and_raises_typed_errors(served: Served):
    client = served.client()

    assert_is(client.training_types()[0], records.TrainingType)
    assert_is(client.error_types()[0], records.ErrorType)
    with pytest.raises(InvalidRequest) as caught:
        client.submit({**make_document(), "unknown": 1})
    assert caught.value.details[0]["field"] == "unknown"
    assert caught.value.request_id.startswith("req_")
    with pytest.raises(Unauthenticated):
        Client(served.url, "ty_garbage").get("job-1")


def test_data_is_validated(served: Served):
    report = served.client().data.validate({"sources": [{"path": "/etc/passwd"}]})

    assert_is(report, records.DataReport)
    assert report["valid"] is False


@pytest.mark.both_databases
def test_pages_are_followed(served: Served):
    with served.api.db.write() as session:
        expected = {make_job(session).id for _ in range(105)}

    assert {job.job_id for job in served.client().list(order_by="created_at")} == expected


@pytest.fixture
def page() -> list[str]:
    """The examples of docs/reference/client.md."""
    text = (Path(__file__).parents[3] / "docs/reference/client.md").read_text()
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_examples_of_the_page_run(served: Served, page: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    first, before, following, changing, pausing, results, searching, inferring, wrong = page
    ended = ran(served.api)
    names: dict[str, Any] = {
        "url": served.url,
        "key": served.api.key,
        "document": make_document(),
        "folder": str(tmp_path),
    }

    exec(first, names)
    exec(before, names)
    names["client"].cancel(names["submitted"].job_id)  # the stream of a job that never runs would not end
    exec(following, names)
    exec(results, names | {"job_id": ended})
    exec(pausing, names | {"job_id": served.api.submit(), "ended": names["submitted"].job_id})
    with served.api.db.write() as session:
        job = make_job(session)
        make_attempt(session, job, session.get_one(Node, "local"), device_indices=(1,))
        job.status = JobState.TRAINING
        names["job_id"] = job.id
    change, save, cancel, delete = changing.splitlines()
    for line in (change, save, cancel):
        exec(line, names)
    exec(searching, names | {"sweep": make_sweep_document()})
    exec(inferring, names | {"request": make_batch(), "measured": EVALUATION})
    exec(wrong, names)
    exec(delete, names | {"job_id": ended})

    said = capsys.readouterr().out
    assert "job.submitted PENDING" in said
    assert "cancel requested" in said
    assert "PAUSED" in said
    assert "PENDING job-" in said
    assert "FINISHING another space" in said
    assert "generate\n{}\n" in said
    assert (tmp_path / "model/a b.bin").read_bytes() == MODEL
    assert served.api.call("GET", f"/v1/jobs/{ended}").status_code == 404
