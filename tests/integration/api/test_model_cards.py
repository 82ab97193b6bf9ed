"""Model cards and lineage over HTTP, and by the client."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from huggingface_hub import ModelCard as HubCard
from sqlalchemy import func, select

from app.domain.ids import new_id
from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.outcomes import Outcome
from app.domain.model_cards.inputs import ReadInputs, ReadModel, ReadSource
from app.models import Artifact, Checkpoint, File, Job, RegisteredModel
from app.security.permissions import Role
from app.services.attempts import work_orders
from app.services.lifecycle import transitions
from app.services.provenance import lineage
from tests.builders.factories import make_checkpoint, make_document, make_job
from tests.builders.recovering import training
from tests.builders.walks import NO_WAIT
from tests.integration.api.test_required_results import ended, measure, planning
from tests.systems.apps import Api
from tests.systems.served import serving
from trainyard.client import Client, NotFound

SECRET = "hunter2"
MARKDOWN = {"Accept": "text/markdown"}


def add_result(api: Api, job_id: str, *names: str) -> None:
    with api.db.write() as session:
        for name in names or ("config.json", "model.safetensors"):
            session.add(Artifact(job_id=job_id, path=name, size_bytes=3, sha256="7" * 64))
        job = session.get_one(Job, job_id)
        job.report = {
            "model_hash": "6" * 64,
            "model_uri": "file:///srv/private/root",
            "weight_files": ["model.safetensors"],
            "final_metrics": {"loss": 0.5},
        }


def add_file(api: Api) -> str:
    with api.db.write() as session:
        file = File(
            id=new_id("file"),
            project="default",
            created_by="key",
            filename="faq.jsonl",
            purpose="fine-tune",
            size_bytes=9,
            sha256="5" * 64,
            status="processed",
            records=3,
        )
        session.add(file)
        return file.id


def finished(api: Api, **changes: Any) -> str:
    document = planning({"metric": "f1", "min": 0.5})
    document["training_config"] |= changes.pop("training_config", {})
    work = ended(api, {**document, **changes})
    add_result(api, work.job_id)
    return work.job_id


def nodes_of(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["id"]: each for each in found["nodes"]}


def links_of(found: dict[str, Any]) -> set[tuple[str, str, str]]:
    return {(each["source"], each["relation"], each["target"]) for each in found["links"]}


@pytest.mark.both_databases
def test_card_is_put_together_when_it_is_read(api: Api) -> None:
    file_id = add_file(api)
    job_id = finished(
        api,
        data_config={"sources": [{"path": file_id}, {"path": f"https://me:{SECRET}@host/x.jsonl?sig={SECRET}"}]},
        training_config={"environment": {"A_TOKEN": SECRET}, "base_model": {"model_id": "org/tiny", "revision": "v1"}},
    )
    before = api.get(f"/v1/jobs/{job_id}/model-card")
    assert (before["evaluations"], before["passed"]) == ([], None)
    (planned,) = api.get(f"/v1/jobs/{job_id}/report")["evaluations"]
    measure(api.db, planned["evaluation_id"], 0.6)

    card = api.get(f"/v1/jobs/{job_id}/model-card")
    text = api.call("GET", f"/v1/jobs/{job_id}/model-card", headers=MARKDOWN)

    assert (card["kind"], card["model_hash"], card["passed"]) == ("model", "6" * 64, True)
    assert [each["location"] for each in card["sources"]] == ["faq.jsonl", "https://host/x.jsonl"]
    assert (card["sources"][0]["sha256"], card["sources"][0]["records"]) == ("5" * 64, 3)
    assert [(each["metric"], each["value"], each["passed"]) for each in card["evaluations"]] == [("f1", 0.6, True)]
    assert (card["base"]["location"], card["base"]["is_of_hub"], card["base"]["revision"]) == ("org/tiny", True, "v1")
    assert (card["compute"]["attempts"], card["final_metrics"]) == (1, {"loss": 0.5})
    assert text.mimetype == "text/markdown"
    read: Any = HubCard(text.get_data(as_text=True))
    assert (read.data.base_model, read.data.library_name) == ("org/tiny", "transformers")
    assert read.data.eval_results[0].metric_value == 0.6
    for secret in (SECRET, "/srv/private"):
        assert secret not in str(card) + read.content


@pytest.mark.both_databases
def test_what_the_last_attempt_has_read_is_in_card_and_lineage(api: Api) -> None:
    file_id = add_file(api)
    sources = [{"path": "/srv/data/faq.jsonl"}, {"path": file_id}]
    base = {"model_id": "org/tiny", "revision": "v1"}
    job_id = finished(api, data_config={"sources": sources}, training_config={"base_model": base})
    assert api.get(f"/v1/jobs/{job_id}/model-card")["base"]["commit"] is None
    for digit in "12":
        inputs = ReadInputs(
            base=ReadModel(commit=digit * 40, sampled_sha256=digit * 64),
            data=[ReadSource(index=0, size_bytes=7, sha256=digit * 64), ReadSource(index=1, size_bytes=9)],
        )
        with api.db.write() as session:
            data = {"attempt": int(digit), **inputs.to_json()}
            transitions.record_event(session, job_id, EventType.INPUTS, message="", data=data)

    card = api.get(f"/v1/jobs/{job_id}/model-card")
    text = api.call("GET", f"/v1/jobs/{job_id}/model-card", headers=MARKDOWN).get_data(as_text=True)
    found = api.get(f"/v1/jobs/{job_id}/lineage")

    assert (card["base"]["commit"], card["base"]["sampled_sha256"]) == ("2" * 40, "2" * 64)
    assert [(each["sha256"], each["size_bytes"]) for each in card["sources"]] == [("2" * 64, 7), ("5" * 64, 9)]
    assert f"(commit `{'2' * 40}`)" in text
    links = {each["source"]: each for each in found["links"] if each["target"] == job_id}
    assert links["location:faq.jsonl"]["sha256"] == "2" * 64
    assert links["model:org/tiny@v1"]["commit"] == "2" * 40
    assert links[file_id]["commit"] is None


def test_there_is_no_card_before_the_end_without_a_result_or_of_other_kinds(api: Api) -> None:
    work = training(api.db)
    why = api.problem(api.call("GET", f"/v1/jobs/{work.job_id}/model-card"), 404)["message"]
    assert "TRAINING; its model card exists when it has ended" in why
    work_orders.finish(api.db, work, Outcome(kind="completed", end_step=2), NO_WAIT)

    why = api.problem(api.call("GET", f"/v1/jobs/{work.job_id}/model-card"), 404)["message"]
    assert "has no result" in why


def test_card_of_an_adapter_for_the_result_of_a_job_has_its_hash(api: Api) -> None:
    first = finished(api)
    with api.db.write() as session:
        base = {"model_id": "none", "job_id": first}
        second = make_job(session, document=make_document(training_config={"base_model": base}))
        second.status = "COMPLETED"
        second_id = second.id
    add_result(api, second_id, "adapter_config.json", "adapter_model.safetensors")

    card = api.get(f"/v1/jobs/{second_id}/model-card")

    assert (card["kind"], card["base"]["job_id"], card["base"]["model_hash"]) == ("adapter", first, "6" * 64)
    assert links_of(api.get(f"/v1/jobs/{second_id}/lineage")) >= {(first, "continued_by", second_id)}


@pytest.mark.both_databases
def test_lineage_goes_both_ways(api: Api) -> None:
    file_id = add_file(api)
    job_id = finished(api, data_config={"sources": [{"path": file_id}]})
    (planned,) = api.get(f"/v1/jobs/{job_id}/report")["evaluations"]
    with api.db.write() as session:
        first = session.get_one(Job, job_id)
        saved = make_checkpoint(session, first)
        session.flush()
        retried = make_job(session, parent_job_id=job_id)
        resumed = make_job(session, resume_checkpoint_id=saved.id)
        base = {"model_id": "none", "job_id": job_id}
        continued = make_job(session, document=make_document(training_config={"base_model": base}))
        session.flush()
        grandchild = make_job(session, parent_job_id=continued.id)
        session.add(RegisteredModel(name="ft:x", kind="fine_tune", project="default", job_id=job_id, created_by="key"))
        ids = {"retried": retried.id, "resumed": resumed.id, "continued": continued.id, "grandchild": grandchild.id}

    found = api.get(f"/v1/jobs/{job_id}/lineage")
    near = api.get(f"/v1/jobs/{job_id}/lineage?depth=1")
    back = api.get(f"/v1/jobs/{ids['grandchild']}/lineage")

    assert links_of(found) >= {
        (file_id, "data_of", job_id),
        ("model:tiny", "base_of", job_id),
        (job_id, "retried_as", ids["retried"]),
        (job_id, "resumed_by", ids["resumed"]),
        (job_id, "continued_by", ids["continued"]),
        (job_id, "evaluated_by", planned["evaluation_id"]),
        (job_id, "named", "model:ft:x"),
        (ids["continued"], "retried_as", ids["grandchild"]),
    }
    nodes = nodes_of(found)
    assert (nodes[file_id]["sha256"], nodes[job_id]["sha256"], found["truncated"]) == ("5" * 64, "6" * 64, False)
    assert ids["grandchild"] not in nodes_of(near)
    assert nodes_of(back)[job_id]["kind"] == "job"
    assert api.call("GET", f"/v1/jobs/{job_id}/lineage?depth=9").status_code == 422


@pytest.mark.long
def test_lineage_shows_a_service_and_is_bounded(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = finished(api)
    service = {"name": "assistant", "model": {"job_id": job_id}, "resource_config": {"device_type": "cpu"}}
    made = api.data(api.post("/v1/services", service), 201)["service_id"]
    assert (job_id, "served_by", made) in links_of(api.get(f"/v1/jobs/{job_id}/lineage"))
    with api.db.write() as session:
        for _ in range(5):
            make_job(session, parent_job_id=job_id)
    monkeypatch.setattr(lineage, "MOST", 4)

    found = api.get(f"/v1/jobs/{job_id}/lineage")

    assert (len(found["nodes"]), found["truncated"]) == (4, True)
    ids = set(nodes_of(found))
    assert all({each["source"], each["target"]} <= ids for each in found["links"])


def test_lineage_finds_what_an_old_result_was_used_for_and_says_when_it_searched_too_few(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = finished(api)
    second = make_document(name="second")
    second["training_config"]["base_model"] = {"job_id": job_id}
    with api.db.write() as session:
        begun = session.get_one(Job, job_id).created_at
        second_id = make_job(session, document=second).id
        for each in (make_job(session) for _ in range(3)):
            each.created_at += timedelta(days=1)
        for each in (make_job(session) for _ in range(3)):
            each.created_at = begun - timedelta(days=1)
        session.flush()
        newer = session.scalar(select(func.count()).select_from(Job).where(Job.created_at >= begun)) or 0
    link = (job_id, "continued_by", second_id)

    monkeypatch.setattr(lineage, "MOST_SEARCHED", newer)
    whole = api.get(f"/v1/jobs/{job_id}/lineage?depth=1")
    monkeypatch.setattr(lineage, "MOST_SEARCHED", 3)
    cut = api.get(f"/v1/jobs/{job_id}/lineage?depth=1")

    assert (link in links_of(whole), whole["truncated"]) == (True, False)
    assert (link in links_of(cut), cut["truncated"]) == (False, True)


def test_lineage_shows_nothing_of_other_projects(api: Api) -> None:
    job_id = finished(api)
    with api.db.write() as session:
        stranger = make_job(session, project="other", parent_job_id=job_id)
        session.flush()
        hidden = make_checkpoint(session, session.get_one(Job, stranger.id), project="other")
        session.flush()
        mine = make_job(session, resume_checkpoint_id=hidden.id)
        stranger_id, mine_id = stranger.id, mine.id
        assert session.get(Checkpoint, hidden.id) is not None

    assert stranger_id not in str(api.get(f"/v1/jobs/{job_id}/lineage"))
    assert stranger_id not in str(api.get(f"/v1/jobs/{mine_id}/lineage"))
    other = api.make_key(Role.ADMIN, "other")
    for what in ("lineage", "model-card"):
        assert api.call("GET", f"/v1/jobs/{job_id}/{what}", key=other).status_code == 404


@pytest.fixture
def client(api: Api) -> Iterator[Client]:
    with serving(api) as served:
        yield served.client()


def test_client_reads_both(api: Api, client: Client) -> None:
    job_id = finished(api)

    assert client.provenance.model_card(job_id)["job_id"] == job_id
    assert client.provenance.model_card_text(job_id).startswith("---\n")
    assert client.provenance.lineage(job_id, depth=1)["nodes"][0]["id"] == job_id
    with pytest.raises(NotFound):
        client.provenance.model_card_text("job-" + "0" * 26)
