"""`trainyard keys rotate`, `projects change|delete` and `audit`, on a real database of each kind."""

import csv
import io
import json
from typing import Any

import pytest
from click.testing import CliRunner

from app.cli.main import main
from app.database.engine import Database
from app.domain.errors import CredentialsInvalid
from app.services.access import api_keys, audit_log
from app.services.lifecycle import audit
from tests.builders.factories import make_job
from tests.systems.commands import run_local, run_local_json


def exported(*arguments: str) -> list[Any]:
    answer = run_local("audit", "export", *arguments)
    assert answer.exit_code == 0, answer.stderr
    return [json.loads(line) for line in answer.stdout.splitlines()]


def test_a_key_is_rotated_with_and_without_grace(db: Database) -> None:
    old = run_local_json("keys", "create", "--role", "admin")

    new = run_local_json("keys", "rotate", old["key_id"], "--grace", "60")
    newest = run_local_json("keys", "rotate", new["key_id"], "--grace", "0")

    assert set(new) == {"key_id", "key", "access_key", "secret_key"}
    assert {api_keys.authenticate(db, key["key"]).role for key in (old, newest)} == {"admin"}
    with pytest.raises(CredentialsInvalid):
        api_keys.authenticate(db, new["key"])
    listed = run_local("keys", "list").stdout
    assert "revoked" in listed
    assert "until" in listed
    own = run_local_json("keys", "change", newest["key_id"], "--requests-per-minute", "5", "--tokens-per-minute", "0")
    assert (own["requests_per_minute"], own["tokens_per_minute"]) == (5, 0)
    reset = run_local_json("keys", "change", newest["key_id"], "--requests-per-minute", "default")
    assert (reset["requests_per_minute"], reset["tokens_per_minute"]) == (None, 0)
    limited = run_local_json("keys", "create", "--role", "inference", "--tokens-per-minute", "1000")
    assert api_keys.authenticate(db, limited["key"]).tokens_per_minute == 1000
    assert "name --requests-per-minute or" in run_local("keys", "change", newest["key_id"]).stderr
    assert run_local("keys", "change", newest["key_id"], "--tokens-per-minute", "many").exit_code == 2
    again = run_local("keys", "rotate", old["key_id"])
    assert (again.exit_code, new["key_id"] in again.stderr) == (1, True)
    assert run_local("keys", "rotate", old["key_id"], "--grace", "-1").exit_code == 2


@pytest.mark.long
@pytest.mark.both_databases
@pytest.mark.usefixtures("db")
def test_a_project_is_described_and_deleted() -> None:
    run_local_json("projects", "create", "team-a")

    assert run_local_json("projects", "change", "team-a", "--description", "speech")["description"] == "speech"
    assert "speech" in run_local("projects", "list").stdout
    switched = run_local_json("projects", "change", "team-a", "--sessions", "recorded")
    assert (switched["sessions"], switched["description"]) == ("recorded", "speech")
    assert run_local("projects", "change", "team-a", "--sessions", "on").exit_code == 2
    assert run_local_json("projects", "change", "team-a", "--claims", "use")["claims"] == "use"
    assert run_local_json("projects", "change", "team-a", "--auto-services", "off")["auto_services"] == "off"
    images = ("--image-source", "registry.example/team", "--image-source", "local", "--image-digests", "required")
    limited = run_local_json("projects", "change", "team-a", *images)
    assert (limited["image_sources"], limited["image_digests"]) == (["registry.example/team", "local"], "required")
    assert run_local_json("projects", "change", "team-a", "--image-source", "all")["image_sources"] == []
    assert run_local("projects", "change", "team-a", "--image-source", "registry").exit_code == 2
    assert "--sessions, --claims" in run_local("projects", "change", "team-a").stderr
    assert run_local("projects", "change", "team-a", "--description", "x" * 256).exit_code == 2
    demanded = run_local_json("projects", "change", "team-a", "--require", "sandbox:full", "--require", "limits")
    assert demanded["required_capabilities"] == ["limits", "sandbox:full"]
    assert run_local("projects", "change", "team-a", "--require", "none", "--require", "limits").exit_code == 2
    assert run_local("projects", "change", "team-a", "--require", "a sandbox").exit_code == 2
    freed = run_local_json("projects", "change", "team-a", "--require", "none")
    assert (freed["required_capabilities"], freed["sessions"]) == ([], "recorded")

    added = run_local_json("projects", "egress", "team-a", "--add", "pypi.org:443", "--add", "*.example.org:8443")
    removed = run_local_json("projects", "egress", "team-a", "--remove", "pypi.org:443")
    assert (added["egress"], removed["egress"]) == (["pypi.org:443", "*.example.org:8443"], ["*.example.org:8443"])
    assert run_local("projects", "egress", "team-a").stdout == "*.example.org:8443\n"
    assert "use host:port" in run_local("projects", "egress", "team-a", "--add", "pypi.org").stderr
    assert CliRunner().invoke(main, ["projects", "delete", "team-a", "--local"], input="n\n").exit_code == 1
    assert run_local_json("projects", "show", "team-a")["name"] == "team-a"
    assert run_local_json("projects", "delete", "team-a", "--yes") == {"name": "team-a", "deleted": True}
    assert run_local("projects", "show", "team-a").exit_code == 1


@pytest.mark.usefixtures("db")
@pytest.mark.parametrize("name", ["x" * 129, "caf\udce9"])
def test_a_key_gets_no_name_that_the_api_would_refuse(name: str) -> None:
    refused = run_local("keys", "create", "--name", name)

    assert (refused.exit_code, "Invalid value for '--name'" in refused.stderr) == (2, True)
    assert [key["name"] for key in run_local_json("keys", "list")["keys"]] == ["made at start"]


def test_a_project_with_jobs_is_not_deleted(db: Database) -> None:
    with db.write() as session:
        make_job(session, project="team-a")

    refused = run_local("projects", "delete", "team-a", "--yes")

    assert (refused.exit_code, "1 jobs" in refused.stderr) == (1, True)


@pytest.mark.long
@pytest.mark.usefixtures("db")
def test_what_was_done_at_the_machine_is_in_the_trail() -> None:
    key_id = run_local_json("keys", "create", "--project", "team-a")["key_id"]
    run_local_json("keys", "revoke", key_id)

    lines = run_local_json("audit", "list", "--project", "team-a", "--actor", "cli")["entries"]

    assert [line["action"] for line in lines] == ["key.revoke", "key.create", "project.create"]
    assert [
        line["id"] for line in run_local_json("audit", "list", "--action", "key", "--target", key_id)["entries"]
    ] == [line["id"] for line in lines[:2]]
    assert run_local_json("audit", "show", lines[0]["id"]) == lines[0]
    assert key_id in run_local("audit", "show", lines[0]["id"]).stdout
    assert "key.revoke" in run_local("audit", "list").stdout
    assert run_local("audit", "list", "--outcome", "denied").stdout == "no entries\n"
    assert run_local("audit", "show", "audit-0").exit_code == 1
    assert run_local("audit", "list", "--after", "yesterday").exit_code == 2


@pytest.mark.both_databases
def test_an_export_has_every_line_oldest_first(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "EXPORT_PAGE", 3)
    with db.write() as session:
        for number in range(10):
            audit.record(session, actor="x", action="node.drain", project=None, target=str(number), data={"n": number})

    lines = exported("--actor", "x")

    assert [line["target"] for line in lines] == [str(number) for number in range(10)]
    assert exported("--actor", "x", "--json") == lines
    assert exported("--actor", "x", "--after", lines[-1]["at"]) == []
    assert exported("--actor", "unknown") == []


def test_an_export_for_spreadsheets_holds_no_formulas(db: Database) -> None:
    with db.write() as session:
        audit.record(session, actor="x", action="key.create", project=None, target="=1+1", message='a,"b"\n@c')

    answer = run_local("audit", "export", "--actor", "x", "--csv")
    head, line = csv.reader(io.StringIO(answer.stdout))

    row = dict(zip(head, line, strict=True))
    assert (row["target"], row["message"], row["data"], row["project"]) == ("'=1+1", 'a,"b"\n@c', "{}", "")
    assert len(run_local("audit", "export", "--actor", "unknown", "--csv").stdout.splitlines()) == 1
