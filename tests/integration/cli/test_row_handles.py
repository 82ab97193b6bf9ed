"""Sweeps, evaluations and batches by the end of an id, a name and `@last`, on a real server."""

import json
from collections.abc import Callable, Iterator

import pytest

from app.models import Job, Sweep
from app.security.permissions import Role
from app.services.jobs.handles import MOST_FOUND
from tests.builders.batches import make_batch
from tests.builders.factories import make_document, make_job
from tests.builders.shards import batch_document
from tests.builders.sweeps import make_sweep, make_sweep_document
from tests.systems.apps import Api
from tests.systems.commands import run, run_json
from tests.systems.served import serving

Enter = Callable[[str], None]


@pytest.fixture
def enter(api: Api, monkeypatch: pytest.MonkeyPatch) -> Iterator[Enter]:
    """Commands from now on have this key."""
    with serving(api) as served:

        def set_key(key: str) -> None:
            monkeypatch.setenv("TRAINYARD_URL", served.url)
            monkeypatch.setenv("TRAINYARD_API_KEY", key)

        yield set_key


def swept(api: Api, name: str, project: str = "team-a") -> str:
    with api.db.write() as session:
        return str(make_sweep(session, document=make_sweep_document(name=name), project=project).id)


@pytest.mark.both_databases
def test_sweep_is_found_by_id_suffix_and_name_within_the_project(api: Api, enter: Enter) -> None:
    sweep_id, theirs = swept(api, "lr"), swept(api, "theirs", "team-b")
    enter(api.make_key(Role.USER, "team-a"))

    for handle in (sweep_id, sweep_id[-8:], "lr"):
        assert run_json("sweep", "show", handle)["sweep_id"] == sweep_id
    assert [line.split()[0] for line in run("sweep", "list").stdout.splitlines()[1:]] == [sweep_id[-8:]]
    assert [line.split()[0] for line in run("sweep", "list", "--full").stdout.splitlines()[1:]] == [sweep_id]
    assert run("sweep", "cancel", sweep_id[-8:]).stdout.startswith(sweep_id)
    for handle in (theirs, theirs[-8:], "theirs"):
        refused = run("sweep", "cancel", handle)
        assert (refused.exit_code, "no sweep" in refused.stderr) == (1, True)
    with api.db.read() as session:
        assert session.get_one(Sweep, theirs).status == "RUNNING"


def test_sweep_that_is_not_meant_is_not_touched(api: Api, enter: Enter) -> None:
    first, second = swept(api, "support-lr"), swept(api, "twice")
    swept(api, "twice")
    enter(api.make_key(Role.USER, "team-a"))

    short, unknown, several = (run("sweep", "cancel", each) for each in (first[-4:], "suport-lr", "twice"))

    assert f"no sweep is named {first[-4:]!r}; {first} (support-lr) only ends so" in short.stderr
    assert "no sweep 'suport-lr' (did you mean support-lr?); `trainyard sweep list` shows them" in unknown.stderr
    assert "'twice' stands for several: " in several.stderr
    assert f"{second} (twice)" in several.stderr
    error = json.loads(run("sweep", "show", "twice", "--json").stderr)["error"]
    assert (error["code"], "stands for several" in error["message"]) == ("AMBIGUOUS", True)
    assert {short.exit_code, unknown.exit_code, several.exit_code} == {1}
    with api.db.read() as session:
        assert {sweep.status for sweep in session.query(Sweep)} == {"RUNNING"}


def test_last_sweep_is_that_of_the_key(api: Api, enter: Enter) -> None:
    enter(api.make_key(Role.USER, "team-a"))
    assert "no sweep '@last': this key has made none" in run("sweep", "show", "@last").stderr
    for name in ("older", "newer"):
        sweep_id = api.data(api.post("/v1/sweeps", make_sweep_document(name=name)), 201)["sweep_id"]
    swept(api, "of-another", "default")
    enter(api.key)

    assert run_json("sweep", "show", "@last")["sweep_id"] == sweep_id


def test_evaluation_is_found_among_evaluations_alone(api: Api, enter: Enter) -> None:
    with api.db.write() as session:
        document = batch_document(name="exam", benchmarks=1)
        evaluation = make_job(session, document=document, project="team-a").id
        training = make_job(session, document=make_document(name="sft"), project="team-a").id
    enter(api.make_key(Role.USER, "team-a"))

    for handle in (evaluation, evaluation[-8:], "exam"):
        assert run_json("eval", "show", handle)["evaluation_id"] == evaluation
    assert run("eval", "cancel", training[-8:]).exit_code == 1
    assert run("eval", "cancel", "exam").stdout.startswith(evaluation)
    with api.db.read() as session:
        assert session.get_one(Job, training).cancel_requested_at is None


def test_evaluation_is_not_hidden_by_trainings_of_its_name(api: Api, enter: Enter) -> None:
    with api.db.write() as session:
        evaluation = make_job(session, document=batch_document(name="exam", benchmarks=1), project="team-a").id
        for _ in range(MOST_FOUND + 1):
            make_job(session, document=make_document(name="exam"), project="team-a")
        training = make_job(session, document=make_document(name="sft"), project="team-a").id
    enter(api.make_key(Role.USER, "team-a"))

    assert run_json("eval", "show", "exam")["evaluation_id"] == evaluation
    assert run("eval", "show", training[-8:]).exit_code == 1
    assert "did you mean" not in run("eval", "show", "sft").stderr
    assert run_json("eval", "show", evaluation[-8:])["evaluation_id"] == evaluation


def test_batch_is_found_by_the_end_of_its_id(api: Api, enter: Enter) -> None:
    with api.db.write() as session:
        older, newer = make_batch(session).id, make_batch(session).id
    enter(api.make_key(Role.USER, "default"))

    assert run_json("batches", "show", older[-8:])["id"] == older
    assert run_json("batches", "show", "@last")["id"] == newer
    assert [line.split()[0] for line in run("batches", "list").stdout.splitlines()[1:]] == [newer[-8:], older[-8:]]
    assert "no batch 'zzzzzz'" in run("batches", "show", "zzzzzz").stderr


def test_batch_is_one_of_the_project_that_is_named(api: Api, enter: Enter) -> None:
    for project in ("team-b", "team-c"):
        api.make_key(Role.USER, project)
    with api.db.write() as session:
        mine = make_batch(session).id
        theirs = make_batch(session, project="team-b").id
    enter(api.key)

    assert run_json("batches", "show", "@last", "--project", "default")["id"] == mine
    assert run_json("batches", "show", "--project", "team-b", theirs[-8:])["id"] == theirs
    refused = run("batches", "show", theirs[-8:], "--project", "default", "--json")
    assert (refused.exit_code, json.loads(refused.stderr)["error"]["code"]) == (1, "NOT_FOUND")
    assert "this key sees none" in run("batches", "show", "@last", "--project", "team-c").stderr


def test_newest_batch_is_cancelled_only_by_its_id(api: Api, enter: Enter) -> None:
    with api.db.write() as session:
        batch_id = make_batch(session).id
    enter(api.make_key(Role.USER, "default"))

    refused = run("batches", "cancel", "@last")

    assert (refused.exit_code, "name it by its id" in refused.stderr) == (2, True)
    assert run_json("batches", "show", batch_id)["status"] != "cancelling"
