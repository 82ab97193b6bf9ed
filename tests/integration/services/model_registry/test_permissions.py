"""Models that another project may ask: what a permission gives, and all that it does not give."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from app.database.engine import Database
from app.domain.errors import (
    BadSpec,
    Conflict,
    Forbidden,
    InvalidRequest,
    ModelNotServed,
    NamedModelNotFound,
    NotFound,
    TrainyardError,
)
from app.domain.lifecycle.states import JobState
from app.models import AuditEntry, Job, ModelPermission, Service
from app.security.permissions import Caller, Role
from app.services.access import projects
from app.services.inference.models import WantedModel, resolve
from app.services.jobs import lookup
from app.services.model_registry import fine_tunes, objects, permissions
from app.services.model_registry.resolving import meaning, resolve_for_training
from app.services.serving import routing
from app.services.serving.routing import Route
from tests.builders.factories import make_checkpoint, make_project
from tests.builders.inference_requests import make_trained
from tests.builders.serving import make_service
from tests.systems.apps import Api

ADMIN = Caller(key_id="cli", role=Role.SUPER_ADMIN, project=None)
OWNER = Caller(key_id="key-1", role=Role.USER, project="default")
ASKER = Caller(key_id="key-2", role=Role.USER, project="other")
STRANGER = Caller(key_id="key-3", role=Role.USER, project="third")


@pytest.fixture
def api(database: Database, tmp_path: Path) -> Api:
    with database.write() as session:
        for name in ("default", "other", "third"):
            make_project(session, name)
    return Api(database, tmp_path)


def fine_tuned(api: Api, *, state: JobState = JobState.COMPLETED, adapter: bool = False) -> tuple[str, str]:
    """(the name of a fine-tuned model of the default project, its job)."""
    with api.db.write() as session:
        parts: dict[str, Any] = {"adapter": True, "training_type": "LORA"} if adapter else {}
        job = make_trained(session, state=state, **parts)
        return fine_tunes.planned(session, job, "tiny", "docs").name, job.id


def granted(api: Api, name: str, *names: str) -> list[ModelPermission]:
    return permissions.grant(api.db, ADMIN, name, names or ("other",))


def routed(api: Api, caller: Caller, model: str, task: str = "generate") -> Route:
    return routing.route(api.app.extensions["trainyard"].plane, caller, model, task=task)


def seen(api: Api, caller: Caller) -> list[str]:
    with api.db.read() as session:
        return [each["id"] for each in objects.model_objects(session, caller)]


def test_the_other_project_is_answered_by_a_service_of_the_owner(api: Api) -> None:
    name, job = fine_tuned(api)
    with api.db.write() as session:
        service = make_service(session, "support", model_key=job).id
    before = [_refusal(api, each, name) for each in (ASKER, STRANGER)]

    granted(api, name)

    assert routed(api, ASKER, name) == Route(service_id=service, project="other", model=name, shared=True)
    assert routed(api, OWNER, name) == Route(service_id=service, project="default", model=name)
    assert [type(each) for each in before] == [NamedModelNotFound, NamedModelNotFound]
    assert _refusal(api, STRANGER, name).message == before[1].message


def test_an_adapter_is_answered_on_its_base(api: Api) -> None:
    name, job = fine_tuned(api, adapter=True)
    with api.db.write() as session:
        service = make_service(session, "base", model_key="/srv/models/tiny").id
    granted(api, name)

    found = routed(api, ASKER, name)

    assert (found.service_id, found.adapter, found.shared) == (service, job, True)


def test_a_permission_holds_for_its_very_name(api: Api) -> None:
    name, job = fine_tuned(api, adapter=True)
    with api.db.write() as session:
        make_service(session, "base", model_key="/srv/models/tiny")
        row = session.get_one(Job, job)
        steps = {step: make_checkpoint(session, row, step=step).id for step in (7, 8)}
    granted(api, f"{name}:ckpt-step-7")

    assert routed(api, ASKER, f"{name}:ckpt-step-7").adapter == f"{job}/{steps[7]}"
    for refused in (name, f"{name}:ckpt-step-8", job, job.replace("job-", "ftjob-"), "base", f"base/{job}"):
        assert isinstance(_refusal(api, ASKER, refused), NamedModelNotFound), refused


def test_a_permission_gives_nothing_but_answers(api: Api) -> None:
    name, job = fine_tuned(api)
    granted(api, name)

    with api.db.read() as session:
        with pytest.raises(NamedModelNotFound):
            resolve_for_training(session, ASKER, "other", name)
        with pytest.raises(NamedModelNotFound):
            meaning(session, ASKER, "other", name)
        with pytest.raises(NotFound):
            lookup.find(session, ASKER, job)
        for wanted in (WantedModel(job_id=job), WantedModel(job_id=name)):
            with pytest.raises(TrainyardError):
                resolve(session, ASKER, "other", wanted)
        shown = objects.model_object(session, ASKER, name)
    with pytest.raises(NamedModelNotFound):
        fine_tunes.delete(api.db, ASKER, name)
    assert shown["owned_by"] == "default"
    assert shown["trainyard"] == {"kind": "fine_tune", "base": None, "job_id": None}
    assert job not in str(shown)
    assert (seen(api, ASKER), seen(api, STRANGER)) == ([name], [])


def test_asking_makes_no_service_and_takes_none_over(api: Api) -> None:
    name, job = fine_tuned(api)
    granted(api, name)

    with pytest.raises(ModelNotServed, match="no service of the project default has the model"):
        routed(api, ASKER, name)

    with api.db.write() as session:
        assert session.scalars(select(Service)).all() == []
        automatic = make_service(session, "tiny-1", model_key=job, is_automatic=True).id
    routed(api, ASKER, name)
    with api.db.read() as session:
        assert session.get_one(Service, automatic).submits_as != ASKER.key_id


def test_errors_say_nothing_of_the_owner(api: Api) -> None:
    name, job = fine_tuned(api, adapter=True)
    with api.db.write() as session:
        make_service(session, "secret-service", model_key=job)
    granted(api, name)

    wrong_task = _refusal(api, ASKER, name, task="embed")
    with api.db.write() as session:
        session.get_one(Job, job).status = JobState.FAILED
    no_more = _refusal(api, ASKER, name)

    assert isinstance(no_more, NamedModelNotFound)
    for error in (wrong_task, no_more):
        assert error.field == "model"
        assert job not in error.message
        assert "secret-service" not in error.message


def test_a_permission_ends_with_itself_and_with_the_model(api: Api) -> None:
    first, job = fine_tuned(api)
    second, other_job = fine_tuned(api)
    with api.db.write() as session:
        for each in (job, other_job):
            make_service(session, f"of-{each[-8:]}", model_key=each, status="PAUSED")
    permission = granted(api, first)[0]
    granted(api, second)

    permissions.revoke(api.db, ADMIN, first, permission.id)
    fine_tunes.delete(api.db, OWNER, second)

    assert [type(_refusal(api, ASKER, name)) for name in (first, second)] == [NamedModelNotFound, NamedModelNotFound]
    assert seen(api, ASKER) == []
    with pytest.raises(NotFound, match="has no permission"):
        permissions.revoke(api.db, ADMIN, first, permission.id)
    with api.db.read() as session:
        query = select(AuditEntry.action, AuditEntry.project, AuditEntry.data).where(AuditEntry.target == first)
        told = sorted(tuple(row) for row in session.execute(query))
    assert told == [
        ("model.share", "default", {"project": "other"}),
        ("model.unshare", "default", {"project": "other"}),
    ]


def test_granting_twice_gives_the_same_permission(api: Api) -> None:
    name, _ = fine_tuned(api)

    first = granted(api, name, "other", "third", "other")
    again = granted(api, name, "third", "other")

    assert [each.project for each in first] == ["other", "third"]
    assert [each.id for each in again] == [first[1].id, first[0].id]


def test_only_what_can_be_shared_is_shared(api: Api) -> None:
    name, _ = fine_tuned(api)
    early, _ = fine_tuned(api, state=JobState.TRAINING)

    with pytest.raises(Conflict, match="has not made it yet"):
        granted(api, early)
    with pytest.raises(NamedModelNotFound):
        granted(api, f"{name}:ckpt-step-3")
    with pytest.raises(NamedModelNotFound):
        granted(api, "ft:tiny:default:docs:00000000")
    with pytest.raises(BadSpec, match="the project default itself"):
        granted(api, name, "default")
    with pytest.raises(NotFound) as unknown:
        granted(api, name, "nowhere")
    assert unknown.value.field == "project_ids"
    for caller in (OWNER, replace(OWNER, role=Role.ADMIN)):
        with pytest.raises(Forbidden):
            permissions.grant(api.db, caller, name, ["other"])


def test_permissions_are_deleted_with_the_project_that_has_them_and_with_the_job(api: Api) -> None:
    name, job = fine_tuned(api)
    granted(api, name, "other", "third")

    projects.delete(api.db, api.app.extensions["trainyard"].plane.storage, ADMIN, "third")
    assert _projects(api) == ["other"]

    with api.db.write() as session:
        session.delete(session.get_one(Job, job))
    assert _projects(api) == []


def test_pages(api: Api) -> None:
    name, _ = fine_tuned(api)
    first, second = granted(api, name, "other", "third")

    with api.db.read() as session:
        newest, has_more = permissions.page(session, ADMIN, name, size=1, after=None)
        rest = permissions.page(session, ADMIN, name, size=1, after=newest[0].id)
        oldest = permissions.page(session, ADMIN, name, size=5, after=None, descending=False)
        of_one = permissions.page(session, ADMIN, name, size=5, after=None, project="third")
        with pytest.raises(InvalidRequest):
            permissions.page(session, ADMIN, name, size=5, after="x")

    assert ([each.id for each in newest], has_more) == ([second.id], True)
    assert ([each.id for each in rest[0]], rest[1]) == ([first.id], False)
    assert [each.id for each in oldest[0]] == [first.id, second.id]
    assert [each.id for each in of_one[0]] == [second.id]


def _projects(api: Api) -> list[str]:
    with api.db.read() as session:
        return sorted(session.scalars(select(ModelPermission.project)))


def _refusal(api: Api, caller: Caller, model: str, task: str = "generate") -> TrainyardError:
    with pytest.raises(TrainyardError) as refused:
        routed(api, caller, model, task)
    return refused.value
