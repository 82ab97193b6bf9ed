"""Names of models: registration, fine-tunes, removal, and what requests may name."""

from collections.abc import Iterator

import pytest

from app.database.engine import Database
from app.domain.errors import BadSpec, Conflict, Forbidden, InvalidRequest, NamedModelNotFound, StillNeeded
from app.domain.lifecycle.states import JobState
from app.domain.model_names import checkpoint_name
from app.models import Job, Service
from app.models.base import utc_now
from app.security.permissions import Caller, Role
from app.services.model_registry import fine_tunes, objects, registered
from app.services.model_registry.resolving import meaning, resolve_for_training
from tests.builders.factories import make_checkpoint, make_document, make_job, make_project
from tests.builders.inference_requests import make_trained
from tests.builders.serving import make_service
from tests.systems.engines import engine_on

ADMIN = Caller(key_id="cli", role=Role.SUPER_ADMIN, project=None)
USER = Caller(key_id="key-1", role=Role.USER, project="default")
OTHER = Caller(key_id="key-2", role=Role.USER, project="other")


@pytest.fixture
def db(sqlite_url: str) -> Iterator[Database]:
    bound = Database().bind(engine_on(sqlite_url))
    with bound.write() as session:
        make_project(session)
        make_project(session, "other")
    yield bound
    bound.close()


def fine_tuned(db: Database, *, state: JobState = JobState.COMPLETED, suffix: str | None = "docs") -> tuple[str, str]:
    """(the name of a fine-tuned model, its job)."""
    with db.write() as session:
        job = make_trained(session, state=state)
        job.created_by = USER.key_id
        return fine_tunes.planned(session, job, "tiny", suffix).name, job.id


def seen(db: Database, caller: Caller) -> list[str]:
    with db.read() as session:
        return sorted(each["id"] for each in objects.model_objects(session, caller))


def test_base_model_is_seen_by_its_project_or_by_all(db: Database) -> None:
    registered.register(db, ADMIN, "tiny", "/srv/models/tiny")
    registered.register(db, ADMIN, "private", "acme/base", project="other")

    assert (seen(db, USER), seen(db, OTHER), seen(db, ADMIN)) == (["tiny"], ["private", "tiny"], ["private", "tiny"])
    with db.read() as session:
        assert resolve_for_training(session, USER, "default", "tiny").base_model == {"model_id": "/srv/models/tiny"}
        assert resolve_for_training(session, USER, "default", "/srv/m").base_model == {"model_id": "/srv/m"}
        assert meaning(session, USER, "default", "private") is None
        with pytest.raises(NamedModelNotFound, match=r"no model private; there are: tiny$"):
            resolve_for_training(session, USER, "default", "private")


def test_asking_alone_shows_the_names_that_may_be_asked_and_nothing_behind_them(db: Database) -> None:
    asker = Caller(key_id="key-3", role=Role.INFERENCE, project="default")
    registered.register(db, ADMIN, "tiny", "/srv/models/tiny")
    registered.register(db, ADMIN, "removed", "/srv/models/removed")
    registered.register(db, ADMIN, "private", "acme/base", project="other")
    registered.remove(db, ADMIN, "removed")
    made, job_id = fine_tuned(db)
    with db.write() as session:
        make_service(session, name="support", model_key="/srv/models/tiny")

    assert seen(db, asker) == sorted([made, "support", "tiny"])
    assert seen(db, USER) == sorted([made, "removed", "support", "tiny"])
    with db.read() as session:
        listed = objects.model_objects(session, asker)
        assert {each["trainyard"]["job_id"] or each["trainyard"]["base"] for each in listed} == {None}
        assert objects.model_object(session, asker, made)["trainyard"]["job_id"] is None
        assert objects.model_object(session, USER, made)["trainyard"]["job_id"] == job_id
        for hidden in ("removed", "private"):
            with pytest.raises(NamedModelNotFound):
                objects.model_object(session, asker, hidden)


def test_the_name_of_a_service_is_for_its_own_model_alone(db: Database) -> None:
    with db.write() as session:
        service = make_service(session, name="support", model_key="/srv/models/tiny")
    with pytest.raises(Conflict, match="has a service support, which serves /srv/models/tiny"):
        registered.register(db, ADMIN, "support", "/srv/models/other")
    registered.register(db, ADMIN, "support", "/srv/models/tiny")
    registered.remove(db, ADMIN, "support")
    registered.register(db, ADMIN, "support", "/srv/models/other", project="other")
    with db.write() as session:
        session.get_one(Service, service.id).ended_at = utc_now()
    registered.remove(db, ADMIN, "support")
    registered.register(db, ADMIN, "support", "/srv/models/other")


def test_unknown_name_is_answered_with_a_few_of_many_models(db: Database) -> None:
    for number in range(12):
        registered.register(db, ADMIN, f"m{number:02}", "/srv/m")
    registered.remove(db, ADMIN, "m11")

    with db.read() as session, pytest.raises(NamedModelNotFound) as refused:
        registered.find(session, USER, "tiny")

    newest = ", ".join(f"m{number:02}" for number in range(10, 0, -1))
    assert str(refused.value) == f"no model tiny; there are: {newest}, and more: GET /v1/models"


@pytest.mark.parametrize(
    ("name", "location"),
    [("a:b", "/srv"), ("ft:x", "/srv"), ("", "/srv"), ("x", " "), ("x", "none"), ("x", "ftp://h/p")],
)
def test_names_and_places_that_can_not_be_are_refused(db: Database, name: str, location: str) -> None:
    with pytest.raises(InvalidRequest):
        registered.register(db, ADMIN, name, location)


def test_removed_base_model_is_listed_and_refuses_new_work_until_it_is_registered_again(db: Database) -> None:
    registered.register(db, ADMIN, "tiny", "/srv/models/tiny")
    with pytest.raises(Conflict, match="/srv/models/tiny"):
        registered.register(db, ADMIN, "tiny", "/srv/models/other")
    with pytest.raises(Forbidden):
        registered.remove(db, USER, "tiny")

    registered.remove(db, ADMIN, "tiny")

    with db.read() as session:
        (shown,) = objects.model_objects(session, USER)
        assert shown["shutdown_date"] <= utc_now().date().isoformat()
        with pytest.raises(Conflict, match="was removed on"):
            resolve_for_training(session, USER, "default", "tiny")
    with pytest.raises(NamedModelNotFound, match="none is registered"):
        registered.remove(db, ADMIN, "tiny")
    registered.register(db, ADMIN, "tiny", "/srv/models/other")
    with db.read() as session:
        assert "shutdown_date" not in objects.model_object(session, USER, "tiny")


def test_fine_tune_is_there_once_its_job_is_completed(db: Database) -> None:
    name, job_id = fine_tuned(db, state=JobState.TRAINING)
    with db.write() as session:
        saved = make_checkpoint(session, session.get_one(Job, job_id), step=300).id

    assert seen(db, USER) == []
    with db.read() as session:
        with pytest.raises(NamedModelNotFound):
            objects.model_object(session, USER, name)
        shown = objects.model_object(session, USER, checkpoint_name(name, 300))
        assert shown["trainyard"] == {"kind": "checkpoint", "base": "tiny", "job_id": job_id, "checkpoint": saved}
        with pytest.raises(NamedModelNotFound, match="no checkpoint of step 301"):
            objects.model_object(session, USER, checkpoint_name(name, 301))
    with db.write() as session:
        session.get_one(Job, job_id).status = JobState.COMPLETED
    assert (seen(db, USER), seen(db, OTHER)) == ([name], [])
    with db.read() as session:
        shown = objects.model_object(session, USER, name)
        assert (shown["object"], shown["owned_by"], shown["trainyard"]["job_id"]) == ("model", "default", job_id)
        assert objects.model_object(session, USER, job_id)["trainyard"]["base"] == "/srv/models/tiny"
        with pytest.raises(NamedModelNotFound):
            objects.model_object(session, OTHER, job_id)
        found = meaning(session, USER, "default", name)
        assert found is not None
        assert (found.job_id, found.checkpoint_id) == (job_id, None)
        assert fine_tunes.of_jobs(session, [job_id])[job_id].name == name
        with pytest.raises(NamedModelNotFound):
            meaning(session, OTHER, "other", name)
        with pytest.raises(NamedModelNotFound):
            meaning(session, ADMIN, "other", name)


def test_suffix_is_checked_before_anything_is_written(db: Database) -> None:
    with pytest.raises(BadSpec, match="1 to 64 letters"):
        fine_tuned(db, suffix="two words")


def test_fine_tune_in_use_is_not_deleted(db: Database) -> None:
    name, job_id = fine_tuned(db)
    with db.write() as session:
        user = make_job(session, document=make_document(training_config={"base_model": {"job_id": job_id}})).id

    with pytest.raises(StillNeeded, match=user):
        fine_tunes.delete(db, USER, name)
    with db.write() as session:
        session.get_one(Job, user).status = JobState.CANCELLED
    with pytest.raises(NamedModelNotFound):
        fine_tunes.delete(db, OTHER, name)
    fine_tunes.delete(db, USER, name)

    assert seen(db, USER) == []
    with pytest.raises(NamedModelNotFound):
        fine_tunes.delete(db, USER, name)
    with db.read() as session:
        assert fine_tunes.of_jobs(session, [job_id])[job_id].removed_at is not None
        with pytest.raises(NamedModelNotFound):
            meaning(session, USER, "default", name)


def test_user_deletes_no_base_model(db: Database) -> None:
    registered.register(db, ADMIN, "tiny", "/srv/models/tiny")

    with pytest.raises(BadSpec, match="trainyard models rm tiny"):
        fine_tunes.delete(db, USER, "tiny")
