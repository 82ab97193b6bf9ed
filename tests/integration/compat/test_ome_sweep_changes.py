"""What clients of OME learn of a sweep's changes: versions, watches, events of all objects, conditions."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from sqlalchemy import event

from app.domain.lifecycle.states import JobState
from app.models import Job
from app.security.permissions import Role
from tests.builders.sweep_runs import SweepRun
from tests.builders.sweeps import make_sweep_document
from tests.integration.compat.test_ome import CORE, JOBS, LONGER_AGO, created, patch, said
from tests.integration.compat.test_ome_sweeps import run_of, train, tuned
from tests.integration.compat.test_ome_watches import shortly, watched
from tests.systems.apps import Api


def version(api: Api, path: str = f"{JOBS}/words") -> int:
    return int(said(api.call("GET", path))["metadata"]["resourceVersion"])


def states(found: Any) -> list[str]:
    return [each["state"] for each in found["status"]["trials"]]


def trains(run: SweepRun, number: int) -> None:
    train(run, number)
    changed(run, number)


def ends(run: SweepRun, number: int, state: JobState = JobState.COMPLETED) -> None:
    run.end(number, state)
    changed(run, number)


def changed(run: SweepRun, number: int) -> None:
    """As a change of the state of its job does."""
    with run.db.write() as session:
        session.get_one(Job, run.trials()[number].job_id).mark_changed()


@pytest.mark.long
@pytest.mark.both_databases
def test_a_watch_reports_that_a_trial_runs_and_ends(api: Api) -> None:
    with run_of(api, tuned(api)) as run:
        run.step()
        time.sleep(LONGER_AGO)
        since = version(api, JOBS)
        with shortly(partial(trains, run, 0), partial(ends, run, 0, JobState.FAILED), run.step):
            changes = watched(api, JOBS, f"resourceVersion={since}", seconds=4)
        ended = watched(api, JOBS, f"resourceVersion={since}", seconds=1)

    assert [each["type"] for each in changes] == ["MODIFIED"] * len(changes)
    reported = [states(each["object"]) for each in changes]
    assert reported[:2] == [["Running"], ["Failed"]]
    assert reported[-1] == ["Failed", "Pending"]
    assert [states(each["object"]) for each in ended] == [["Failed", "Pending"]]


def test_its_version_grows_with_each_change_of_its_trials(api: Api) -> None:
    with run_of(api, tuned(api)) as run:
        versions = [version(api)]
        changes: list[Callable[[], object]] = [run.step, partial(trains, run, 0), partial(ends, run, 0), run.step]
        for change in changes:
            change()
            versions.append(version(api))
        same = version(api)

    assert versions == sorted(versions)
    assert len(set(versions)) == len(versions)
    assert same == versions[-1] == int(said(api.call("GET", JOBS))["items"][0]["metadata"]["resourceVersion"])


@pytest.mark.long
@pytest.mark.both_databases
def test_lists_and_watches_of_all_events_have_those_of_sweeps(api: Api) -> None:
    created(api, "first")
    with run_of(api, tuned(api)) as run:
        run.step()
        time.sleep(LONGER_AGO)
        since = version(api, JOBS)
        with shortly(run.step, partial(run.end, 0), run.step):
            changes = watched(api, f"{CORE}/events", f"resourceVersion={since}", seconds=4)
    created(api, "last")

    every = said(api.call("GET", f"{CORE}/events"))["items"]
    paged, more = [], ""
    while True:
        page = said(api.call("GET", f"{CORE}/events?limit=3{more}"))
        paged += page["items"]
        if "continue" not in page["metadata"]:
            break
        more = f"&continue={page['metadata']['continue']}"

    names = [each["metadata"]["name"] for each in every]
    of_sweep = [each for each in every if each["involvedObject"]["name"] == "words"]
    assert names == sorted(names) == [each["metadata"]["name"] for each in paged]
    assert any("trial 0: batch_size=8, learning_rate=0.1" in each["message"] for each in of_sweep)
    assert {each["involvedObject"]["name"] for each in every} >= {"first", "words", "words-trial-0", "last"}
    assert any(each["object"]["involvedObject"]["name"] == "words" for each in changes)
    api.call("DELETE", f"{JOBS}/words")
    left = {each["involvedObject"]["name"] for each in said(api.call("GET", f"{CORE}/events"))["items"]}
    assert left == {"first", "last"}


def test_events_of_sweeps_of_other_projects_and_vocabularies_are_not_listed(api: Api) -> None:
    tuned(api)
    api.data(api.post("/v1/sweeps", make_sweep_document()), 201)
    other = api.make_key(Role.USER, "other")

    mine = said(api.call("GET", f"{CORE}/events"))["items"]
    of_others = said(api.call("GET", f"{CORE.replace('default', 'other')}/events", key=other))["items"]

    assert {each["involvedObject"]["name"] for each in mine} == {"words"}
    assert of_others == []


def test_a_resumed_sweep_has_the_condition_of_other_training_jobs(api: Api) -> None:
    with run_of(api, tuned(api)) as run:
        run.step()
        for suspend in (True, False):
            patch(api, f"{JOBS}/words", "merge-patch+json", {"spec": {"suspend": suspend}})
        resumed = said(api.call("GET", f"{JOBS}/words"))["status"]["conditions"]

    found = {each["type"]: (each["status"], each["reason"]) for each in resumed}
    assert found["Suspended"] == ("False", "Resumed")
    assert found["Running"][0] == "True"


@contextmanager
def statements(api: Api) -> Iterator[list[str]]:
    found: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        found.append(statement)

    event.listen(api.db.engine, "before_cursor_execute", note)
    yield found
    event.remove(api.db.engine, "before_cursor_execute", note)


def test_the_statements_of_a_list_do_not_grow_with_its_sweeps(api: Api) -> None:
    counts = []
    for names in ("a", "bcde"):
        for name in names:
            with run_of(api, tuned(api, name)) as run:
                run.step()
                train(run, 0)
                run.end(0)
                run.step()
        said(api.call("GET", JOBS))
        with statements(api) as found:
            items = said(api.call("GET", JOBS))["items"]
        assert len(items[-1]["status"]["trials"]) == 2
        counts.append(len(found))

    assert counts[0] == counts[1]
