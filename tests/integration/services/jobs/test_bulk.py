"""One action on several jobs: what one job refuses does not keep the others from it."""

import pytest

from app.domain.errors import InvalidRequest
from app.domain.names import MOST_LABELS
from app.http.context import EXTENSION
from app.models import Job
from app.security.permissions import Caller, Role
from app.services.access.key_names import ids_named
from app.services.jobs import updates
from app.services.jobs.control import bulk
from app.services.requests.control_plane import ControlPlane
from tests.systems.apps import Api

ADMINISTRATOR = Caller(key_id="key-a", role=Role.SUPER_ADMIN, project=None)
OF_OTHER = Caller(key_id="key-b", role=Role.USER, project="other")


def plane_of(api: Api) -> ControlPlane:
    plane: ControlPlane = api.app.extensions[EXTENSION].plane
    return plane


def labels_of(api: Api, job_id: str) -> dict[str, str]:
    with api.db.read() as session:
        return dict(session.get_one(Job, job_id).labels)


def test_each_job_has_its_own_outcome_in_the_order_asked(sqlite_api: Api) -> None:
    ended, waits = sqlite_api.submit(name="ended"), sqlite_api.submit(name="waits")
    sqlite_api.post(f"/v1/jobs/{ended}/cancel")

    found = bulk.pause(plane_of(sqlite_api), ADMINISTRATOR, [ended, "job-none", waits, waits])

    assert [(each.name, each.status) for each in found] == [("ended", ""), ("", ""), ("waits", "PAUSED")]
    assert "is CANCELLED" in found[0].problem
    assert found[1].problem == "no job job-none"


def test_the_name_of_a_foreign_job_is_not_told(sqlite_api: Api) -> None:
    job = sqlite_api.submit(name="secret")

    [found] = bulk.cancel(plane_of(sqlite_api), OF_OTHER, [job])

    assert (found.name, found.status, found.problem) == ("", "", f"no job {job}")


@pytest.mark.parametrize("count", [0, bulk.MOST_JOBS + 1])
def test_no_job_and_too_many_are_refused(sqlite_api: Api, count: int) -> None:
    with pytest.raises(InvalidRequest, match="select 1 to 100 jobs"):
        bulk.cancel(plane_of(sqlite_api), ADMINISTRATOR, [f"job-{i}" for i in range(count)])


def test_a_label_is_set_or_removed_and_others_stay(sqlite_api: Api) -> None:
    job = sqlite_api.submit(labels={"team": "a", "phase": "one"})
    plane = plane_of(sqlite_api)

    updates.label(plane, ADMINISTRATOR, job, "phase", "two")
    updates.label(plane, ADMINISTRATOR, job, "team", None)

    assert labels_of(sqlite_api, job) == {"phase": "two"}
    assert [each["job_id"] for each in sqlite_api.get("/v1/jobs?labels.phase=two")["jobs"]] == [job]
    assert sqlite_api.get("/v1/jobs?labels.team=a")["jobs"] == []


def test_an_equal_label_is_no_change(sqlite_api: Api) -> None:
    job = sqlite_api.submit(labels={"team": "a"})
    version = sqlite_api.get(f"/v1/jobs/{job}")["version"]

    updates.label(plane_of(sqlite_api), ADMINISTRATOR, job, "team", "a")

    assert sqlite_api.get(f"/v1/jobs/{job}")["version"] == version


def test_one_label_too_many_is_refused(sqlite_api: Api) -> None:
    job = sqlite_api.submit(labels={f"key{i}": "x" for i in range(MOST_LABELS)})

    with pytest.raises(InvalidRequest, match="which are the most"):
        updates.label(plane_of(sqlite_api), ADMINISTRATOR, job, "another", "x")


def test_ended_jobs_get_labels(sqlite_api: Api) -> None:
    job = sqlite_api.submit(labels={"team": "a"})
    sqlite_api.post(f"/v1/jobs/{job}/cancel")

    outcomes = bulk.label(plane_of(sqlite_api), ADMINISTRATOR, [job], "verdict", "discarded")

    assert [each.problem for each in outcomes] == [""]
    assert sqlite_api.get(f"/v1/jobs/{job}")["labels"] == {"team": "a", "verdict": "discarded"}


def test_keys_are_found_by_the_names_that_their_callers_see(sqlite_api: Api) -> None:
    sqlite_api.make_key(Role.SUPER_ADMIN, None, name="root of all")
    sqlite_api.make_key(Role.USER, "default", name="ann")
    sqlite_api.make_key(Role.USER, "other", name="ann")

    with sqlite_api.db.read() as session:
        of_all = ids_named(session, ADMINISTRATOR, "ann")
        of_other = ids_named(session, OF_OTHER, "ann")
        hidden = ids_named(session, OF_OTHER, "root of all")
        administrators = ids_named(session, OF_OTHER, "administrator")

    assert (len(of_all), len(of_other)) == (3, 2)
    assert hidden == ["root of all"]
    assert len(administrators) == 3
