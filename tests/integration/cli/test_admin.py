"""The administrator's groups on a real database of each kind."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from app.database.engine import Database
from app.domain.lifecycle.events import EventType
from app.models import StuckDevice
from app.models.base import utc_now
from app.services.access import api_keys
from app.services.lifecycle import transitions
from tests.builders.factories import make_job, make_node
from tests.systems.commands import run_json, run_local, run_local_json


@pytest.mark.usefixtures("db")
def test_init_makes_the_admin_key_and_tells_where(tmp_path: Path) -> None:
    answer = run_json("db", "init")

    assert answer["admin_key_file"] == str(tmp_path / "data" / "admin.key")
    assert (tmp_path / "data" / "admin.key").stat().st_mode & 0o777 == 0o600


@pytest.mark.long
@pytest.mark.usefixtures("db")
def test_the_schema_moves_down_and_up() -> None:
    newest = run_json("db", "current")["needed"]
    assert run_json("db", "current") == {"revision": newest, "needed": newest}
    assert run_json("db", "downgrade", "base", "--yes") == {"revision": None}

    refused = run_local("jobs", "list")

    assert refused.exit_code == 1
    assert "trainyard db init" in refused.stderr
    assert run_json("db", "upgrade") == {"revision": newest}


@pytest.mark.long
def test_jobs_are_listed_newest_first_and_filtered(db: Database) -> None:
    with db.write() as session:
        first = make_job(session).id
        second = make_job(session, project="other").id

    assert [job["job_id"] for job in run_local_json("jobs", "list")["jobs"]] == [second, first]
    assert [job["job_id"] for job in run_local_json("jobs", "list", "--project", "other")["jobs"]] == [second]
    assert run_local_json("jobs", "list", "--status", "training")["jobs"] == []
    assert run_local("jobs", "list", "--quiet").stdout == f"{second}\n{first}\n"
    assert run_local("jobs", "list", "-q", "--status", "training").stdout == ""
    assert first in run_local("jobs", "list", "--full").stdout
    assert f"{first[-8:]}  " in run_local("jobs", "list").stdout


def test_a_job_is_shown_with_its_history(db: Database) -> None:
    with db.write() as session:
        job_id = make_job(session).id
    run_local("jobs", "cancel", job_id, "--reason", "no more need")

    shown = run_local_json("jobs", "show", job_id)

    assert shown["status"] == "CANCELLED"
    assert (shown["events"][-1]["actor"], shown["events"][-1]["message"]) == ("cli", "no more need")
    assert "no more need" in run_local("jobs", "show", job_id).stdout


@pytest.mark.long
def test_a_long_history_is_shown_from_its_end(db: Database) -> None:
    with db.write() as session:
        job_id = make_job(session).id
        for number in range(520):
            transitions.record_event(session, job_id, EventType.WARNING, message=f"event {number}")

    said = run_local("jobs", "show", job_id).stdout

    assert "event 519" in said
    assert "event 499" not in said
    assert "The last 20 events" in said
    events = run_local_json("jobs", "show", job_id)["events"]
    assert [events[0]["message"], events[-1]["message"]] == ["event 20", "event 519"]


def test_an_unknown_job_is_reported_in_one_line(db: Database) -> None:
    answer = run_local("jobs", "show", "job-1")

    assert answer.exit_code == 1
    assert answer.stderr == "Error: NOT_FOUND: no job job-1; `trainyard jobs list` shows them\n"


@pytest.mark.long
def test_nodes_are_drained_and_enabled(db: Database) -> None:
    with db.write() as session:
        make_node(session, "gpu-1")

    assert run_local_json("nodes", "drain", "gpu-1")["status"] == "draining"
    assert run_local_json("nodes", "show", "gpu-1")["status"] == "draining"
    assert run_local_json("nodes", "enable", "gpu-1")["status"] == "ready"
    assert "gpu-1" in run_local("nodes", "list").stdout
    assert run_local("nodes", "drain", "gpu-2").exit_code == 1


def test_nodes_are_listed_by_name(db: Database) -> None:
    with db.write() as session:
        for name in ("gpu-2", "gpu-3", "gpu-1"):
            make_node(session, name)

    assert [node["name"] for node in run_local_json("nodes", "list")["nodes"]] == ["gpu-1", "gpu-2", "gpu-3"]


@pytest.mark.long
def test_put_back_prints_the_number_of_devices(db: Database) -> None:
    with db.write() as session:
        make_node(session, "gpu-1")
        before = utc_now() - timedelta(hours=1)
        session.add(StuckDevice(node="gpu-1", device_index=1, job_id="j", attempt=1, since=before, seen_at=before))

    assert run_local("nodes", "put-back", "gpu-1").stdout == "gpu-1: 1 device put back\n"
    assert run_local("nodes", "put-back", "gpu-1").stdout == (
        "gpu-1: no device is out of service, nothing was put back\n"
    )
    assert run_local_json("nodes", "put-back", "gpu-1")["devices"] == 0
    assert run_local("nodes", "put-back", "gpu-2").stderr == (
        "Error: NOT_FOUND: no node 'gpu-2' (did you mean gpu-1?); GET /v1/nodes lists them\n"
    )


def test_what_keeps_a_job_from_a_node_is_shown(db: Database) -> None:
    with db.write() as session:
        make_node(session, "gpu-1")
        job_id = make_job(session).id

    assert run_local_json("nodes", "why", "gpu-1", job_id)["starts_now"] is True
    run_local_json("nodes", "drain", "gpu-1")

    said = run_local("nodes", "why", "gpu-1", job_id).stdout
    assert said.startswith(f"{job_id} cannot start there now\n")
    assert "is draining" in said
    assert run_local("nodes", "why", "gpu-1", "job-1").exit_code == 1


@pytest.mark.long
def test_queues_are_made_and_show_who_waits(db: Database) -> None:
    run_local_json("queues", "create", "night")
    with db.write() as session:
        job_id = make_job(session, queue="night").id

    assert [queue["name"] for queue in run_local_json("queues", "list")["queues"]] == ["default", "night"]
    assert [entry["job_id"] for entry in run_local_json("queues", "show", "night")["entries"]] == [job_id]
    assert run_local_json("queues", "show", "default")["entries"] == []
    assert run_local("queues", "show", "nigth").exit_code == 1
    assert run_local("queues", "create", "a:b").exit_code == 2


@pytest.mark.long
def test_a_key_is_made_used_listed_and_revoked(db: Database) -> None:
    made = run_local_json("keys", "create", "--role", "viewer", "--expires", "3", "--name", "ci")

    assert set(made) == {"key_id", "key", "access_key", "secret_key"}
    assert api_keys.authenticate(db, made["key"]).role == "viewer"
    listed = {key["key_id"]: key for key in run_local_json("keys", "list")["keys"]}
    assert listed[made["key_id"]]["project"] == "default"
    assert made["key"] not in json.dumps(listed)
    assert run_local_json("keys", "revoke", made["key_id"])["revoked"]
    assert "revoked" in run_local("keys", "list").stdout


def test_a_key_for_a_new_project_makes_it_and_says_so(db: Database) -> None:
    answer = run_local("keys", "create", "--project", "team-b", "--json")

    assert "Created the project team-b." in answer.stderr
    assert api_keys.authenticate(db, json.loads(answer.stdout)["key"]).project == "team-b"
    assert run_local_json("projects", "show", "team-b")["name"] == "team-b"


def test_a_super_admins_key_has_no_project(db: Database) -> None:
    made = run_local_json("keys", "create", "--role", "super_admin")

    assert api_keys.authenticate(db, made["key"]).project is None
    assert run_local("keys", "create", "--role", "super_admin", "--project", "default").exit_code == 1


@pytest.mark.usefixtures("db")
def test_projects_are_made_and_listed() -> None:
    run_local_json("projects", "create", "team-a")

    assert {project["name"] for project in run_local_json("projects", "list")["projects"]} == {"default", "team-a"}
    assert run_local("projects", "create", "Team A").exit_code == 2


def test_a_directory_without_a_database_is_named_and_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINYARD_DATA_DIR", str(tmp_path / "nowhere"))

    answer = run_local("jobs", "list")

    assert answer.exit_code == 1
    assert f"{tmp_path}/nowhere/trainyard.db" in answer.stderr
    assert not (tmp_path / "nowhere" / "trainyard.db").exists()


def test_an_unreachable_database_is_reported_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRAINYARD_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("TRAINYARD_DATABASE_URL", "postgresql://unknown:secret@127.0.0.1:1/none")

    answer = run_local("jobs", "list")

    assert answer.exit_code == 1
    assert "does not answer" in answer.stderr
    assert "secret" not in answer.stderr


@pytest.mark.usefixtures("db")
def test_a_quota_is_set_shown_and_taken_away() -> None:
    run_local_json("projects", "create", "team-a")

    made = run_local_json(
        "projects", "quota", "set", "team-a", "--gpus-deserved", "2", "--gpus-limit", "8", "--running", "3"
    )
    changed = run_local_json("projects", "quota", "set", "team-a", "--gpus-limit", "none", "--gpu-hours", "1.5")
    shown = run_local("projects", "quota", "show", "team-a").stdout

    assert made["quota"]["gpus"] == {"deserved": 2, "limit": 8, "over_quota_weight": 1.0}
    assert changed["quota"]["gpus"] == {"deserved": 2, "limit": None, "over_quota_weight": 1.0}
    assert (changed["quota"]["max_running_jobs"], changed["quota"]["gpu_hours_per_month"]) == (3, 1.5)
    assert changed["usage"]["running_jobs"] == 0
    assert shown.splitlines()[0].split() == ["used", "deserved", "limit", "weight"]
    assert shown.splitlines()[1].split() == ["GPUs", "0", "2", "1"]


@pytest.mark.usefixtures("db")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "give at least one of --gpus-deserved"),
        (["--gpus-limit", "many"], "'many' is not a valid integer"),
        (["--gpus-limit", "-1"], "is not in the range"),
        (["--gpu-hours", "-0.5"], "is not in the range"),
        (["--gpus-deserved", "3", "--gpus-limit", "2"], "can't be more than it may use"),
    ],
)
def test_a_bad_quota_says_what_is_wrong(options: list[str], said: str) -> None:
    run_local_json("projects", "create", "team-a")

    answer = run_local("projects", "quota", "set", "team-a", *options)

    assert answer.exit_code != 0
    assert said in answer.stderr
