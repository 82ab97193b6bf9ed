"""What the validation of a batch finds before anything runs."""

import gzip
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import zstandard

from app.compat.openai.batches.checking import check
from app.domain.files.inspection import TOO_MANY_REQUESTS
from app.domain.spec.model import BaseModel
from app.models import File, Service
from app.security.permissions import Caller, Role
from app.services.batches import validating
from app.services.inference.models import WantedModel
from app.services.model_registry import fine_tunes, permissions, registered
from tests.builders.batch_runs import MODEL, BatchRun, answer, lines_of, request
from tests.builders.factories import make_project
from tests.builders.inference_requests import make_trained
from tests.builders.service_runs import ServiceRun
from tests.systems.apps import Api

ROOT = Caller(key_id="key-root", role=Role.SUPER_ADMIN, project=None)


def problems(run: BatchRun) -> list[tuple[str, str | None, int | None]]:
    return [(each["code"], each["param"], each["line"]) for each in run.batch().problems]


def validate(run: BatchRun) -> None:
    while run.status == "validating":
        run.step()


def refuse_hot(_endpoint: str, body: Mapping[str, Any]) -> Sequence[tuple[str, str, str]]:
    return [("body.temperature", "must be 2 at most", "validation_error")] if body.get("temperature", 0) > 2 else []


def test_a_batch_waits_until_its_file_is_inspected(api: Api) -> None:
    run = BatchRun(api, [request("a")])
    with run.db.write() as session:
        session.get_one(File, run.file_id).status = "uploaded"
    assert run.step() is False
    assert (run.status, run.batch().pending_reason) == ("validating", f"its file {run.file_id} is being inspected")
    with run.db.write() as session:
        session.get_one(File, run.file_id).status = "processed"
    validate(run)
    assert (run.status, run.batch().pending_reason) == ("in_progress", "")


def test_what_the_inspection_has_found_is_what_the_batch_has_failed_with(sqlite_api: Api) -> None:
    run = BatchRun(sqlite_api, [request("a")])
    found = [
        "line 2: custom_id: 'a' is the one of line 1, too",
        "line 3: is not JSON: Expecting value at character 1",
        "line 4: url: must be one of /v1/embeddings",
        "line 5: body.model: must name a model",
        f"line 50001: {TOO_MANY_REQUESTS}",
        "the file is damaged gzip: end",
    ]
    with run.db.write() as session:
        file = session.get_one(File, run.file_id)
        file.status, file.status_details = "error", "\n".join(found)
    validate(run)
    assert run.status == "failed"
    assert problems(run) == [
        ("duplicate_custom_id", "custom_id", 2),
        ("invalid_json_line", None, 3),
        ("invalid_url", "url", 4),
        ("invalid_request", "body.model", 5),
        ("too_many_requests", None, 50001),
        ("invalid_file", None, None),
    ]
    assert run.jobs() == {}


def test_every_request_is_checked_and_nothing_runs(api: Api) -> None:
    content = [
        request("a"),
        request("b", temperature=3),
        request("c", url="/v1/embeddings"),
        request("d", "no-such-model"),
        request("e", "no-such-model"),
        request("f", "ft:tiny:default:docs:00000000"),
        request("g", "/etc/passwd"),
    ]
    run = BatchRun(api, content, check=refuse_hot)
    validate(run)
    assert run.status == "failed"
    assert problems(run) == [
        ("validation_error", "body.temperature", 2),
        ("invalid_url", "url", 3),
        ("model_not_found", "body.model", 4),
        ("model_not_found", "body.model", 6),
        ("model_not_found", "body.model", 7),
    ]
    assert run.jobs() == {}
    assert run.batch().ended_at is not None
    assert run.batch().total == len(content)
    assert "trainyard models add" in run.batch().problems[2]["message"]


def test_model_of_another_project_that_may_be_asked_is_refused_with_the_way_to_ask_it(api: Api) -> None:
    with api.db.write() as session:
        make_project(session, "owners")
        name = fine_tunes.planned(session, make_trained(session, project="owners"), "tiny", "docs").name
    before = BatchRun(api, [request("a", name)])
    validate(before)
    permissions.grant(api.db, ROOT, name, ["default"])
    run = BatchRun(api, [request("a", name), request("b", name)])
    validate(run)
    assert [problems(each) for each in (before, run)] == [
        [("model_not_found", "body.model", 1)],
        [("conflict", "body.model", 1)],
    ]
    said = run.batch().problems[0]["message"]
    assert "is a model of the project owners" in said
    assert said.endswith("Ask it by single requests")
    assert "owners" not in before.batch().problems[0]["message"].replace(name, "")


def test_a_hundred_problems_are_enough(sqlite_api: Api) -> None:
    run = BatchRun(sqlite_api, [request(str(i), temperature=3) for i in range(150)], check=refuse_hot)
    validate(run)
    assert len(run.batch().problems) == 100
    assert run.batch().checked_lines == 100


def test_slices_add_up(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validating, "SLICE_SECONDS", 0.0)
    content = b"\n" + lines_of(request(str(i)) for i in range(5)) + b"\r\n"
    run = BatchRun(api, content)
    assert run.step() is True
    assert run.batch().checked_lines == 1
    validate(run)
    batch = run.batch()
    assert (batch.status, batch.checked_lines, batch.total, dict(batch.models)) == ("in_progress", 5, 5, {MODEL: 5})


def test_a_compressed_file_is_read_as_well(sqlite_api: Api) -> None:
    whole = lines_of([request("a"), request("b")])
    for content in (gzip.compress(whole), zstandard.ZstdCompressor().compress(whole)):
        run = BatchRun(sqlite_api, content)
        run.start()
        run.store([answer("a"), answer("b")])
        run.end()
        run.step()
        assert [line["custom_id"] for line in run.answers()] == ["a", "b"]


def test_rules_that_the_jobs_would_break_are_found_before_they_run(sqlite_api: Api) -> None:
    parts = {"resource_config": {"gpu_count": 1, "device_type": "cpu", "node_count": 2}}
    run = BatchRun(sqlite_api, [request("a")], parts=parts)
    validate(run)
    assert run.status == "failed"
    assert problems(run) == [("invalid_argument", "trainyard.resource_config.node_count", None)]


def test_a_model_is_what_single_requests_mean_by_it(api: Api) -> None:
    ServiceRun(api, name="support", model=WantedModel(base=BaseModel().changed(model_id="/srv/models/served")))
    registered.register(api.db, ROOT, "tiny", "/srv/models/tiny", project=None)
    run = BatchRun(api, [request("a", "support"), request("b", "tiny"), request("c", "org/of-the-hub")])
    run.start()
    assert run.status == "in_progress", run.batch().problems
    models = {name: job.document.training_config.base_model.model_id for name, job in run.jobs().items()}
    assert models == {"support": "/srv/models/served", "tiny": "/srv/models/tiny", "org/of-the-hub": "org/of-the-hub"}


def test_a_service_that_answers_other_requests_is_a_problem(sqlite_api: Api) -> None:
    ServiceRun(sqlite_api, name="vectors", task="embed")
    run = BatchRun(sqlite_api, [request("a", "vectors")])
    validate(run)
    assert problems(run) == [("conflict", "body.model", 1)]


def test_a_batch_whose_key_has_ended_before_its_jobs_has_failed(api: Api) -> None:
    run = BatchRun(api, [request("a"), request("b", "/srv/models/other")])
    validate(run)
    run.change(submits_as="key-that-is-gone")
    run.step()
    batch = run.batch()
    assert (batch.status, run.jobs(), batch.failed) == ("failed", {}, 2)
    assert [each["code"] for each in batch.problems] == ["api_key_ended"] * 2
    assert "revoked or has expired" in batch.problems[0]["message"]


def test_a_model_that_has_gone_since_the_validation_costs_its_requests_alone(api: Api) -> None:
    service = ServiceRun(api, name="support")
    run = BatchRun(api, [request("a"), request("b", "support")])
    validate(run)
    with run.db.write() as session:
        session.get_one(Service, service.id).status = "ENDING"
    run.step()
    assert set(run.jobs()) == {MODEL}
    run.store([answer("a")])
    run.end()
    run.step()
    assert run.status == "completed"
    assert [(line["custom_id"], line["error"]["code"]) for line in run.errors()] == [("b", "model_not_found")]


def test_a_model_with_characters_that_no_database_stores_is_a_problem(api: Api) -> None:
    content = [request("a", "x\0"), request("b", "x\0"), request("c", "y" * 2000)]
    found = BatchRun(api, content, check=check)
    validate(found)
    assert problems(found)[:2] == [("validation_error", "body.model", 1), ("validation_error", "body.model", 2)]
    unseen = BatchRun(api, content)  # another problem of the body is found first
    validate(unseen)
    assert problems(unseen) == [("model_not_found", "body.model", 1), ("model_not_found", "body.model", 3)]
    assert unseen.batch().problems[0]["model"] == "x\ufffd"


def test_names_of_fields_are_shown_short_and_storable(api: Api) -> None:
    asked = request("a")
    asked["body"] |= {"n" * 5000: 1, "tab\there": 2}
    run = BatchRun(api, [asked], check=check)
    validate(run)
    assert sorted(len(each["param"]) for each in run.batch().problems) == [len("body.tab here"), 128]
    assert all(each["param"].isprintable() for each in run.batch().problems)
