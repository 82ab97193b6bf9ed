"""Commands with a team's key on a real server: handles find the key's own jobs, and no others."""

import json
from collections.abc import Callable, Iterator

import pytest
from click.testing import Result

from app.domain.lifecycle.states import JobState
from app.models import Job
from app.security.permissions import Role
from app.services.jobs.handles import MOST_FOUND
from tests.builders.factories import make_attempt, make_document, make_job, make_node
from tests.systems.apps import Api
from tests.systems.commands import run, run_json
from tests.systems.served import Served, serving
from trainyard.client import AmbiguousHandle, NotFound

Enter = Callable[[str], None]


@pytest.fixture
def served(api: Api) -> Iterator[Served]:
    with serving(api) as served:
        yield served


@pytest.fixture
def enter(served: Served, monkeypatch: pytest.MonkeyPatch) -> Enter:
    """Commands from now on have this key."""

    def set_key(key: str) -> None:
        monkeypatch.setenv("TRAINYARD_URL", served.url)
        monkeypatch.setenv("TRAINYARD_API_KEY", key)

    return set_key


def stored(api: Api, name: str, project: str = "team-a") -> str:
    with api.db.write() as session:
        return str(make_job(session, document=make_document(name=name), project=project).id)


def shown(answer: Result) -> str:
    assert answer.exit_code == 0, answer.stderr
    return str(json.loads(answer.stdout)["job_id"])


def show(handle: str) -> Result:
    return run("jobs", "show", handle, "--json")


@pytest.mark.both_databases
def test_team_finds_its_jobs_by_id_suffix_and_name(api: Api, enter: Enter) -> None:
    job_id, other = stored(api, "mine"), stored(api, "other")
    enter(api.make_key(Role.USER, "team-a"))

    assert [shown(show(handle)) for handle in (job_id, job_id[-8:], job_id[-4:], "mine")] == [job_id] * 4
    assert [job["job_id"] for job in run_json("jobs", "list")["jobs"]] == [other, job_id]
    assert [line.split()[0] for line in run("jobs", "list").stdout.splitlines()[1:]] == [other[-8:], job_id[-8:]]


@pytest.mark.both_databases
def test_job_of_another_project_is_found_by_nothing(api: Api, enter: Enter) -> None:
    theirs = stored(api, "theirs", "team-b")
    enter(api.make_key(Role.ADMIN, "team-a"))

    for handle in (theirs, theirs[-8:], "theirs"):
        refused = show(handle)
        assert (refused.exit_code, f"no job {handle}" in refused.stderr) == (1, True)
        assert run("cancel", handle).exit_code == 1
    assert run_json("jobs", "list") == {"jobs": [], "total_count": 0}
    assert "team-b" in run("jobs", "list", "--project", "team-b").stderr
    enter(api.key)
    assert shown(show("theirs")) == theirs


def test_same_name_in_two_projects_is_ambiguous_only_for_a_key_that_sees_both(api: Api, enter: Enter) -> None:
    job_id = stored(api, "sft")
    stored(api, "sft", "team-b")

    enter(api.make_key(Role.VIEWER, "team-a"))
    assert shown(show("sft")) == job_id
    enter(api.key)
    assert "'sft' stands for 2 jobs" in run("jobs", "show", "sft").stderr


def test_name_of_no_job_is_told_which_may_be_meant(api: Api, enter: Enter) -> None:
    stored(api, "support-sft")
    stored(api, "suport-sft2", "team-b")
    enter(api.make_key(Role.USER, "team-a"))

    refused, other = show("suport-sft"), show("elsewhere")

    assert "no job suport-sft (did you mean support-sft?); `trainyard jobs list` shows them" in refused.stderr
    assert "no job elsewhere; `trainyard jobs list` shows them" in other.stderr


def test_last_is_the_newest_of_each_key(api: Api, enter: Enter) -> None:
    first, second = (api.make_key(Role.USER, "default") for _ in range(2))
    submitted = {key: api.submit(key=key) for key in (first, second)}

    for key, job_id in submitted.items():
        enter(key)
        assert shown(show("@last")) == job_id
        assert [job["job_id"] for job in run_json("jobs", "list", "--mine")["jobs"]] == [job_id]
    newer = api.submit(key=second)
    assert shown(show("@last")) == newer
    enter(api.make_key(Role.USER, "default"))
    assert "this key has submitted no job" in run("logs", "@last").stderr


def test_ambiguous_handle_lists_five_of_the_jobs(api: Api, enter: Enter) -> None:
    jobs = [stored(api, "sft") for _ in range(7)]
    enter(api.make_key(Role.USER, "team-a"))

    refused = run("cancel", "sft")
    for_programs = run("cancel", "sft", "--json")

    first, *listed, more = refused.stderr.splitlines()
    assert (refused.exit_code, first) == (1, "Error: 'sft' stands for 7 jobs; name one by its id:")
    assert [line.split()[:3] for line in listed] == [[job_id, "sft", "QUEUED"] for job_id in jobs[:1:-1]]
    assert all(line.split()[3].endswith("s") for line in listed)
    assert more.strip() == "…"
    assert json.loads(for_programs.stderr)["error"]["job_ids"] == jobs[:1:-1]
    with api.db.read() as session:
        assert {session.get_one(Job, job_id).status for job_id in jobs} == {JobState.QUEUED}


def test_client_finds_as_the_command_line_does(api: Api, served: Served) -> None:
    job_id = stored(api, "one")
    stored(api, "two")
    stored(api, "two")
    client = served.client()

    assert [client.find(handle).job_id for handle in (job_id, job_id[-6:], "one")] == [job_id] * 3
    with pytest.raises(AmbiguousHandle) as ambiguous:
        client.find("two")
    assert (ambiguous.value.count, len(ambiguous.value.matches)) == (2, 2)
    for handle in ("on", "one ", "%", "____", job_id[-3:], "zzzz", "@last"):
        with pytest.raises(NotFound):
            client.find(handle)
    assert (client.count(name="two"), client.count(handle="two"), client.count(handle="two", project="team-a")) == (
        2,
    ) * 3


def test_only_administrators_preempt(api: Api, enter: Enter) -> None:
    with api.db.write() as session:
        job = make_job(session, project="team-a")
        make_attempt(session, job, make_node(session))
        job_id = job.id

    enter(api.make_key(Role.ADMIN, "team-a"))
    assert "AUTHZ_PERMISSION_DENIED" in run("jobs", "preempt", job_id[-8:]).stderr
    enter(api.key)
    assert run_json("jobs", "preempt", job_id[-8:], "--reason", "urgent")["job_id"] == job_id

    with api.db.read() as session:
        job = session.get_one(Job, job_id)
        assert (job.requested, job.requested_reason) == ("preempt", "urgent")


def test_missing_key_and_server_name_the_ways_out(api: Api, enter: Enter, monkeypatch: pytest.MonkeyPatch) -> None:
    enter("")
    monkeypatch.setenv("TRAINYARD_DATA_DIR", "/nowhere")
    assert "TRAINYARD_API_KEY" in run("jobs", "list").stderr

    monkeypatch.setenv("TRAINYARD_URL", "http://127.0.0.1:9")
    said = run("jobs", "list").stderr
    assert len(said.splitlines()) == 1
    assert all(word in said for word in ("http://127.0.0.1:9", "trainyard up", "TRAINYARD_URL", "--local"))


def test_events_attempts_checkpoints_and_usage_are_those_of_the_job(api: Api, enter: Enter) -> None:
    with api.db.write() as session:
        job = make_job(session, document=make_document(name="ran"), project="team-a")
        make_attempt(session, job, make_node(session))
        job_id = str(job.id)
    enter(api.make_key(Role.USER, "team-a"))
    run("cancel", "ran", "--reason", "no more need")

    assert run_json("events", "ran")[-1]["message"] == "no more need"
    assert "no more need" in run("events", "ran").stdout
    assert [attempt["number"] for attempt in run_json("attempts", job_id)] == [1]
    assert run_json("checkpoints", "ran") == []
    assert "no metrics yet" in run("metrics", "ran").stdout
    used = run_json("usage")
    assert [project["name"] for project in used["projects"]] == ["team-a"]
    assert used["projects"][0]["usage"]["storage_bytes"] == 0
    assert "team-a" in run("usage").stdout


def test_named_project_is_searched_beyond_the_newest_of_others(api: Api, served: Served) -> None:
    wanted = stored(api, "sft")
    for _ in range(MOST_FOUND + 1):
        stored(api, "sft", "team-b")

    client = served.client()

    assert [job.job_id for job in client.list(handle="sft", project="team-a")] == [wanted]


def test_name_goes_before_the_ends_of_ids(api: Api, enter: Enter) -> None:
    other = stored(api, "other")
    named = stored(api, other[-4:])
    enter(api.make_key(Role.USER, "team-a"))

    assert shown(show(other[-4:])) == named
    assert shown(show(other[-8:])) == other


def test_few_characters_of_an_id_stop_no_job(api: Api, enter: Enter) -> None:
    job_id = stored(api, "other")
    enter(api.make_key(Role.ADMIN, "team-a"))

    for command in (("cancel",), ("jobs", "delete", "--yes")):
        refused = run(*command, job_id[-4:])
        assert (refused.exit_code, f"{job_id} (other) only ends so" in refused.stderr) == (1, True)
    with api.db.read() as session:
        assert session.get_one(Job, job_id).status == JobState.QUEUED
    assert run_json("cancel", job_id[-6:])["job_id"] == job_id


def test_many_jobs_of_one_name_are_not_counted_wrongly(api: Api, enter: Enter) -> None:
    for _ in range(MOST_FOUND + 5):
        stored(api, "sft")
    enter(api.make_key(Role.USER, "team-a"))

    assert f"stands for more than {MOST_FOUND} jobs" in run("cancel", "sft").stderr
