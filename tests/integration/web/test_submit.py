"""Submitting by form: what it offers, what it says of a document, and the job that it makes."""

import json
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import select

from app.domain.errors import LimitExceeded
from app.http.context import EXTENSION, Backend
from app.http.slots import Slots
from app.models import Job
from app.services.jobs import data_validation
from app.services.preflight import admission
from app.services.preflight.admission import AdmissionFailure
from app.services.recipes import recipes
from app.web import job_form
from tests.builders.factories import make_document, make_job
from tests.builders.shards import batch_document
from tests.integration.web.conftest import Browser, Page

PARTIAL = {"HX-Request": "true"}


def document_of(page: Page) -> dict[str, Any]:
    """What stands in the page's text of the document."""
    text = page.html.split('<textarea id="document"', 1)[1].split(">", 1)[1].split("</textarea>", 1)[0]
    found: dict[str, Any] = json.loads(Page(text).text)
    return found


def checked(web: Browser, document: object, path: str = "/ui/submit/check", **fields: str) -> Page:
    text = document if isinstance(document, str) else json.dumps(document)
    web.get("/ui/submit")
    answer = web.post(path, {"document": text, **fields}, headers=PARTIAL)
    assert answer.status_code == 200, answer.get_data(as_text=True)
    return Page(answer.get_data(as_text=True))


def test_every_usual_field_has_one_control_and_a_meaning():
    methods = [job_form.method(kind, framework) for kind, framework in (("SFT", "HF_TRAINER"), ("", "CUSTOM"))]
    for method in methods:
        shown = [*job_form.first(), *job_form.groups()]
        fields = [*(field for group in shown for field in group.fields), *method.usual, *method.others]
        paths = [field.path for field in fields]
        assert len(paths) == len(set(paths))
        assert all(field.meaning and field.label for field in fields)
    assert {"training_config.hyperparameters.learning_rate", "training_config.hyperparameters.packing"} <= {
        field.path for field in (*methods[0].usual, *methods[0].others)
    }
    assert "training_config.framework.custom_script_path" in {field.path for field in methods[1].usual}


def test_hyperparameters_are_those_of_the_method_on_its_framework(web: Browser):
    lora = web.get("/ui/submit/hyperparameters?training_type=LORA&framework=HF_TRAINER")
    assert 'data-path="training_config.hyperparameters.lora_r"' in lora.html
    assert "QLORA does not run on FSDP: choose HF_TRAINER, DEEPSPEED, CUSTOM." in (
        web.get("/ui/submit/hyperparameters?training_type=QLORA&framework=FSDP").text
    )
    custom = web.get("/ui/submit/hyperparameters?framework=CUSTOM")
    assert 'data-path="training_config.hyperparameters"' in custom.html
    assert "Choose a training type" in web.get("/ui/submit/hyperparameters").text


def test_a_good_document_is_planned_and_nothing_is_stored(web: Browser):
    page = checked(web, make_document())

    assert "Place in the queue 1, in default" in page.text
    assert "no node is registered yet" in page.text
    with web.api.db.read() as session:
        assert session.scalars(select(Job)).all() == []


@pytest.mark.parametrize(
    ("document", "field", "message"),
    [
        ({**make_document(), "resource_config": {"gpu_count": "2"}}, "resource_config.gpu_count", "must be an integer"),
        ({**make_document(), "labls": {}}, "labls", "unknown field"),
        ({**make_document(), "name": "<script>"}, "name", "must be 1 to 128 letters"),
        ("{", "", "the document is not JSON"),
        ("[]", "", "the document must be a JSON object"),
        ('{"name": "a", "name": "b"}', "", "appears twice"),
    ],
)
def test_what_is_wrong_is_said_at_its_field(web: Browser, document: object, field: str, message: str):
    page = checked(web, document)

    assert f'data-field="{field}"' in page.html
    assert message in page.text


def test_missing_data_is_said_first_and_at_its_field(web: Browser, monkeypatch: pytest.MonkeyPatch):
    missing = AdmissionFailure(cause="DATA_NOT_FOUND", message="data source no.jsonl does not exist")
    monkeypatch.setattr(admission, "missing_input", lambda *_: missing)

    page = checked(web, make_document())

    assert "It would fail data_config.sources : data source no.jsonl does not exist" in page.text.replace(
        "sources:", "sources :"
    )
    assert 'data-field="data_config.sources" data-message="data source no.jsonl' in page.html
    assert "Place in the queue" not in page.text
    assert page.text.count("no.jsonl") == 1


def test_the_field_of_a_missing_input_is_that_of_its_kind():
    assert job_form.field_of_input("reward model /m does not exist").endswith(".reward_model_id")
    assert job_form.field_of_input("reward r.py does not exist").endswith(".reward")
    assert job_form.field_of_input("image i does not exist") == ""


@pytest.mark.parametrize(
    ("name", "copy"), [("run", "run-2"), ("run-2", "run-3"), ("run-2026", "run-2026-2"), ("x" * 128, "x" * 126 + "-2")]
)
def test_a_copy_has_a_name_of_its_own(web: Browser, name: str, copy: str):
    with web.api.db.write() as session:
        job_id = make_job(session, document={**make_document(), "name": name}).id

    assert document_of(web.get(f"/ui/submit?clone={job_id}"))["name"] == copy


def test_submitting_makes_the_job_and_goes_to_its_page(web: Browser):
    web.get("/ui/submit")
    answer = web.post("/ui/submit", {"document": json.dumps({**make_document(), "name": "by-form"})})

    with web.api.db.read() as session:
        job = session.scalars(select(Job)).one()
    assert (answer.status_code, answer.headers["Location"]) == (303, f"/ui/jobs/{job.id}")
    assert (job.name, job.project) == ("by-form", "default")


def test_submitting_a_wrong_document_makes_none(web: Browser):
    web.get("/ui/submit")
    answer = web.post("/ui/submit", {"document": "{}"}, headers=PARTIAL)

    assert answer.status_code == 422
    assert answer.headers["HX-Retarget"] == "#notices"
    with web.api.db.read() as session:
        assert session.scalars(select(Job)).all() == []


def test_a_copy_of_a_job_has_its_document_and_can_be_submitted(web: Browser):
    with web.api.db.write() as session:
        job = make_job(session, document={**make_document(), "name": "first"})
        job.labels = {"team": "a</textarea><script>"}
        job_id = job.id

    page = web.get(f"/ui/submit?clone={job_id}")

    document = document_of(page)
    assert (document["name"], document["labels"]) == ("first-2", {"team": "a</textarea><script>"})
    assert "A copy of the job first." in page.text
    assert "<script>" not in page.html.split("</head>")[1]
    assert "Place in the queue" in checked(web, {**document, "labels": {}}).text


def test_a_copy_is_of_a_visible_training_alone(web: Browser, member: Browser):
    with web.api.db.write() as session:
        foreign = make_job(session, project="other").id
        batch = make_job(session, document=batch_document()).id

    assert "A copy" in web.get(f"/ui/submit?clone={foreign}").text
    member.get(f"/ui/submit?clone={foreign}", 404)
    assert "this form is for trainings" in web.get(f"/ui/submit?clone={batch}", 400).text


def test_every_recipe_can_be_started_from(web: Browser):
    for each in recipes():
        page = web.get(f"/ui/submit?recipe={each.name}")
        document = document_of(page)
        assert document["name"] == each.document["name"]
        assert document["data_config"]["sources"] == []
        assert each.summary in page.text
    web.get("/ui/submit?recipe=none", 404)


def test_a_viewer_has_no_form_and_can_submit_nothing(viewer: Browser):
    viewer.get("/ui/submit", 403)
    assert viewer.post("/ui/submit", {"document": json.dumps(make_document())}).status_code == 403
    assert viewer.post("/ui/submit/check", {"document": "{}"}, headers=PARTIAL).status_code == 403


def test_a_member_submits_into_the_own_project_only(member: Browser):
    page = member.get("/ui/submit")
    assert 'name="project" value="default"' in page.html
    refused = member.post("/ui/submit", {"document": json.dumps(make_document()), "project": "other"})
    assert refused.status_code == 404


def test_the_data_is_read_as_the_training_would(web: Browser, monkeypatch: pytest.MonkeyPatch):
    report = {
        "valid": True,
        "errors": [],
        "warnings": ["few records"],
        "left_out": [],
        "lengths": {"p50": 12, "max": 90},
        "truncated_share": 0.25,
        "sources": [
            {
                "location": "/srv/<b>.jsonl",
                "split": "train",
                "columns": ["prompt", "completion"],
                "records_read": 1000,
                "complete": False,
                "dropped": 2,
                "truncated_share": 0.25,
                "lengths": {"p50": 12},
                "first_records": [{"text": '{"prompt": "<i>hi</i>"}', "cut": True, "tokens": 7}],
            }
        ],
    }
    monkeypatch.setattr(data_validation, "validate", lambda *_, **__: report)

    page = checked(web, make_document(), "/ui/submit/data")

    assert "The data can be trained on" in page.text
    assert "/srv/<b>.jsonl train prompt, completion 1,000+ 2 25 % p50\xa012".replace("\xa0", " ") in page.text
    assert "few records" in page.text
    assert '{"prompt": "<i>hi</i>"} … 7 tokens' in page.text
    assert "<i>hi" not in page.html


def test_data_that_takes_longer_is_asked_for_again(web: Browser, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("app.web.routes.submit._DATA_SECONDS", 0.0)

    assert "Still reading" in checked(web, make_document(), "/ui/submit/data").text


def _take_all(slots: Slots) -> None:
    with suppress(LimitExceeded):
        while True:
            slots.take("default")


def test_open_tabs_take_no_slot_of_a_preview(web: Browser, monkeypatch: pytest.MonkeyPatch):
    backend: Backend = web.api.app.extensions[EXTENSION]
    monkeypatch.setattr("app.web.routes.submit._DATA_SECONDS", 0.0)
    monkeypatch.setattr("app.web.routes.submit.holder", lambda: "default")
    _take_all(backend.viewers)
    assert "Still reading" in checked(web, make_document(), "/ui/submit/data").text

    _take_all(backend.previews)
    page = checked(web, make_document(), "/ui/submit/data")

    assert "previews of data that one project may have on this server are in use; try again in a moment." in page.text
    assert "nothing is wrong with the document" in page.text
    assert "Not ready yet" not in page.text


def test_no_request_makes_the_known_methods_more(web: Browser):
    before = job_form._known.cache_info().currsize
    for number in range(20):
        page = web.get(f"/ui/submit/hyperparameters?training_type=made-up-{number}&framework=F{number}")
        assert 'data-path="training_config.hyperparameters' not in page.html
    assert job_form._known.cache_info().currsize == before
