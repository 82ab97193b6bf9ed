"""POST /v1/data/validate as seen by clients, with a stand-in for the coordinator that inspects."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import select

from app.domain.errors import NotSupportedYet, Unavailable
from app.domain.spec.model import JobDocument
from app.http.context import EXTENSION
from app.models import Inspection
from app.security.permissions import Role
from app.services.access import api_keys
from app.services.jobs import data_validation
from app.services.jobs.data_validation import ValidationLimits
from app.services.preflight import admission, inspections
from app.services.preflight.admission import InspectionSettings
from app.services.preflight.inspection_queue import InspectionQueue
from app.services.preflight.inspections import InspectionTask
from tests.builders.factories import make_document
from tests.builders.inference_requests import make_batch
from tests.builders.walks import make_job
from tests.systems.apps import Api

PATH = "/v1/data/validate"
FOUND: dict[str, Any] = {
    "errors": [],
    "warnings": ["long records"],
    "left_out": [],
    "lengths": {"max": 7},
    "truncated_share": 0.25,
    "sources": [{"index": 0, "columns": ["text"], "records_read": 3, "complete": True, "lengths": {"max": 7}}],
    "seconds": {"inspected": 1.0},
}


@contextmanager
def coordinator(api: Api, report: dict[str, Any] = FOUND) -> Iterator[list[InspectionTask]]:
    """Answers every question with the same report; collects what it was asked."""
    seen: list[InspectionTask] = []
    over = threading.Event()

    def serve() -> None:
        line = InspectionQueue(api.db, "here:boot:1:1")
        while not over.wait(0.02):
            for each in line.free([]):
                work = inspections.claim(api.db, each, line.me)
                if work is not None:
                    seen.append(work)
                    admission.conclude(api.db, work, work.report or report)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def question(api: Api, name: str = "train.jsonl", **changes: Any) -> dict[str, Any]:
    (api.inputs / name).write_text("{}\n")
    return {"data_config": {"sources": [{"path": str(api.inputs / name)}]}, **changes}


def test_the_answer_has_what_was_found(api: Api):
    with coordinator(api) as seen:
        report = api.data(api.post(PATH, question(api)))

    assert (report["valid"], report["warnings"], report["lengths"]) == (True, ["long records"], {"max": 7})
    assert report["sources"][0]["columns"] == ["text"]
    assert "seconds" not in report
    (work,) = seen
    assert work.document.training_config.base_model.to_json() == {"model_id": "none"}
    assert work.document.training_config.training_type == "SFT"


def test_a_dry_run_of_an_inference_job_has_what_was_found_where_that_is_asked_for(api: Api):
    path, sources = "/v1/inference?dry_run=true", question(api)
    broken = {**FOUND, "errors": [{"error_type": "DATA_INVALID", "message": "train.jsonl line 7 is not JSON"}]}
    with coordinator(api, broken) as seen:
        plain = api.data(api.post(path, make_batch(**sources)))
        asked = api.data(api.post(f"{path}&inspect=true", make_batch(**sources)))
        request = {
            "model": {"model_uri": "/srv/models/tiny"},
            "benchmarks": [{"name": "f1", "dataset": sources["data_config"]["sources"][0]}],
        }
        measured = api.data(api.post("/v1/evaluations?dry_run=true&inspect=true", request))
        task = {"type": "requests", "endpoint": "/v1/embeddings"}
        requests = api.data(api.post(f"{path}&inspect=true", make_batch(task=task, **sources)))

    assert "data" not in plain
    for found in (asked, measured):
        assert (found["data"]["valid"], found["data"]["errors"][0]["error_type"]) == (False, "DATA_INVALID")
    assert [work.document.kind for work in seen] == ["batch", "evaluation"]
    assert (requests["data"]["valid"], requests["data"]["sources"]) == (True, [])
    assert requests["data"]["left_out"][0].startswith("requests are checked")


@pytest.mark.parametrize("path", ["/v1/inference", "/v1/evaluations"])
def test_inspect_without_dry_run_submits_nothing(sqlite_api: Api, path: str):
    refused = sqlite_api.post(f"{path}?inspect=true", {})

    assert refused.status_code == 400
    assert "inspect goes with dry_run=true" in refused.text


def test_a_model_that_is_to_be_divided_has_the_devices_for_it(sqlite_api: Api):
    framework = {"type": "MEGATRON", "config": {"tensor_parallel": "2", "pipeline_parallel": "3"}}
    with coordinator(sqlite_api) as seen:
        asked = {"training_type": "SFT", "framework": framework}
        assert sqlite_api.data(sqlite_api.post(PATH, question(sqlite_api, training_config=asked)))["valid"]

    assert [work.document.resource_config.gpu_count for work in seen] == [6]


def test_the_same_again_is_known_and_a_changed_file_is_not(api: Api):
    asked = question(api)
    with coordinator(api) as seen:
        answers = [api.data(api.post(PATH, asked)) for _ in range(2)]
        (api.inputs / "train.jsonl").write_text("[]\n")
        api.post(PATH, asked)

    assert answers[0] == answers[1]
    assert len(seen) == 2


def test_a_repeated_request_is_answered_once(api: Api):
    with coordinator(api):
        first, again = (api.post(PATH, question(api), headers={"Idempotency-Key": "k"}) for _ in range(2))
        other = api.post(PATH, question(api, "b.jsonl"), headers={"Idempotency-Key": "k"})

    assert api.data(first) == api.data(again)
    assert again.headers["Idempotency-Replayed"] == "true"
    assert api.problem(other, 409)["code"] == "IDEMPOTENCY_CONFLICT"


def test_client_that_gave_up_waiting_gets_the_answer_later(api: Api):
    document = whole_document(api, "s3://bucket/train.jsonl")
    ask = patient(api, document)

    with pytest.raises(Unavailable):
        ask(0.1)
    with coordinator(api) as seen:
        assert ask(5.0)["valid"]
        assert len(seen) == 1
        with api.db.read() as session:
            assert [row.told for row in session.scalars(select(Inspection))] == [True]
        ask(5.0)
        assert len(seen) == 2  # what lies behind a URI may have changed


def whole_document(api: Api, path: str) -> dict[str, Any]:
    """As the view makes it."""
    return make_document(
        training_config={"base_model": {"model_id": str(api.inputs)}},
        data_config={"sources": [{"path": path}]},
        labels={},
        output_config={"checkpoint": {"save_steps": 1}},
        scheduling_config={"queue": "default"},
    )


def patient(api: Api, document: dict[str, Any]) -> Callable[[float], dict[str, Any]]:
    """The service asked as the view asks it, but for so many seconds only."""
    plane = api.app.extensions[EXTENSION].plane
    caller = api_keys.authenticate(api.db, api.key)

    def ask(seconds: float) -> dict[str, Any]:
        patience = ValidationLimits(inspection=InspectionSettings(rows=10, waiting=10), seconds=seconds)
        return data_validation.validate(plane, caller, JobDocument.from_json(document), patience)

    return ask


def test_disabled_inspections_are_named_in_the_answer(sqlite_api: Api):
    plane = sqlite_api.app.extensions[EXTENSION].plane
    caller = api_keys.authenticate(sqlite_api.db, sqlite_api.key)
    document = whole_document(sqlite_api, "https://example.org/a.jsonl")

    with pytest.raises(NotSupportedYet, match="TRAINYARD_PREFLIGHT_ENABLED is off"):
        data_validation.validate(plane, caller, JobDocument.from_json(document), ValidationLimits(inspection=None))


def test_rules_of_submit_hold_and_name_the_field(sqlite_api: Api):
    wrong = {
        "data_config.sources.0.path": question(sqlite_api) | {"data_config": {"sources": [{"path": "/etc/passwd"}]}},
        "training_config.hyperparameters.speed": question(
            sqlite_api, training_config={"hyperparameters": {"speed": "1"}}
        ),
        "data_config.validation_split": question(sqlite_api)
        | {"data_config": {"sources": [{"path": str(sqlite_api.inputs)}], "validation_split": 1.0}},
    }

    reports = {field: sqlite_api.data(sqlite_api.post(PATH, asked)) for field, asked in wrong.items()}

    assert [(r["valid"], r["errors"][0]["error_type"]) for r in reports.values()] == [(False, "INVALID_CONFIG")] * 3
    assert [report["errors"][0]["field"] for report in reports.values()] == list(wrong)


def test_results_of_another_project_are_not_there(sqlite_api: Api):
    job_id = make_job(sqlite_api.db)
    stolen = f"{sqlite_api.folder}/data/files/jobs/{job_id}/artifacts/records.jsonl"
    key = sqlite_api.make_key(Role.ADMIN, "other")

    report = sqlite_api.data(sqlite_api.post(PATH, {"data_config": {"sources": [{"path": stolen}]}}, key=key))

    assert report["errors"][0]["field"] == "data_config.sources.0.path"
    assert "the project other has no job with such results" in report["errors"][0]["message"]


def test_who_may_ask_and_in_what_shape(sqlite_api: Api):
    viewer = sqlite_api.make_key(Role.VIEWER)
    asked = question(sqlite_api)

    assert sqlite_api.post(PATH, asked, key=viewer).status_code == 403
    assert sqlite_api.post(f"{PATH}?project=other", asked, key=sqlite_api.make_key(Role.USER)).status_code == 404
    assert sqlite_api.problem(sqlite_api.post(PATH, {}), 422)["details"][0]["field"] == "data_config"
    assert sqlite_api.post(PATH, {**asked, "name": "x"}).status_code == 422


@pytest.mark.parametrize(
    ("source", "headers"),
    [
        ({"path": "scaidrive://share/train.jsonl"}, {"X-ScaiDrive-Token": "opensesame"}),
        ({"path": "https://data.example.com/train.jsonl", "credentials": {"token": "opensesame"}}, {}),
    ],
)
def test_tokens_reach_the_inspection_sealed_and_are_dropped_afterwards(sqlite_api: Api, source, headers):
    asked = {"data_config": {"sources": [source]}}
    with coordinator(sqlite_api) as seen:
        answer = sqlite_api.post(PATH, asked, headers=headers)

    assert sqlite_api.data(answer)["valid"]
    (work,) = seen
    assert "opensesame" not in f"{work.document}{work.sealed_secrets}"
    assert work.sealed_secrets
    with sqlite_api.db.read() as session:
        (row,) = session.scalars(select(Inspection)).all()
        assert (row.sealed_secrets, row.document) == ("", None)
