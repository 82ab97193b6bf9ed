"""The administrators' groups over a real server, with the key of a team: allowed, refused, and invisible."""

import json
from collections.abc import Iterator

import pytest

from app.models import AuditEntry
from app.security.permissions import Role
from tests.builders.factories import make_job, make_node, make_project, make_webhook
from tests.systems.apps import Api
from tests.systems.commands import run, run_json
from tests.systems.served import Served, serving


@pytest.fixture
def served(api: Api, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A server on which the commands act as the admin of the project red."""
    with serving(api) as served:
        monkeypatch.setenv("TRAINYARD_URL", served.url)
        monkeypatch.setenv("TRAINYARD_API_KEY", api.make_key(Role.ADMIN, "red"))
        monkeypatch.setenv("TRAINYARD_DATA_DIR", str(api.folder / "nowhere"))
        api.make_key(Role.USER, "blue")
        yield served


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize(
    "command",
    [
        "nodes drain gpu-1",
        "nodes enable gpu-1",
        "nodes label gpu-1 fast",
        "nodes put-back gpu-1",
        "nodes remove gpu-1",
        "queues create night",
        "queues pause default",
        "queues weight default 2",
        "projects create green",
        "projects change red --description x",
        "projects egress red --add pypi.org:443",
        "projects quota set red --running 1",
        "projects delete red --yes",
        "models add tiny /srv/models/tiny",
        "models rm tiny",
        "keys create --role super_admin",
    ],
)
def test_what_needs_a_super_admin_is_refused_with_the_servers_words(command: str) -> None:
    refused = run(*command.split())

    assert refused.exit_code == 1
    assert refused.stderr.startswith("Error: AUTHZ_PERMISSION_DENIED: ")
    assert "super" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_a_team_sees_nodes_queues_and_its_own_jobs(served: Served) -> None:
    with served.api.db.write() as session:
        make_node(session, "gpu-1")
        mine, other = (make_job(session, project=name).id for name in ("red", "blue"))

    assert "gpu-1" in run("nodes", "list").stdout
    assert run_json("nodes", "show", "gpu-1")["status"] == "ready"
    assert run_json("queues", "list")["queues"][0]["waiting"] == 1
    assert [entry["job_id"] for entry in run_json("queues", "show")["entries"]] == [mine]
    assert run("queues", "show", "night").stderr.startswith("Error: NOT_FOUND: no queue 'night'; ")
    assert "no queue 'defualt' (did you mean default?)" in run("queues", "show", "defualt").stderr
    assert run_json("schedule", "explain", mine)["nodes"][0]["node"] == "gpu-1"
    assert run_json("nodes", "why", "gpu-1", mine)["starts_now"] is True
    for hidden in (("schedule", "explain", other), ("nodes", "why", "gpu-1", other)):
        assert run(*hidden).stderr == f"Error: NOT_FOUND: no job {other}\n"


def test_a_team_sees_its_own_project_share_and_quota(served: Served) -> None:
    with served.api.db.write() as session:
        make_node(session, "gpu-1")
        make_project(session, "red").quota = {"max_running_jobs": 7}

    assert [each["name"] for each in run_json("projects", "list")["projects"]] == ["red"]
    assert run_json("projects", "quota", "show", "red")["quota"]["max_running_jobs"] == 7
    assert run_json("projects", "quota", "show", "red")["usage"]["running_jobs"] == 0
    assert run_json("projects", "egress", "red") == {"egress": []}
    assert {share["project"] for share in run_json("schedule", "shares")["shares"]} == {"red"}
    for command in (("projects", "show", "blue"), ("projects", "quota", "show", "blue")):
        assert run(*command).stderr == "Error: NOT_FOUND: no project blue\n"


def test_an_admin_makes_rotates_and_revokes_keys_of_the_project_alone(served: Served) -> None:
    made = run_json("keys", "create", "--role", "viewer", "--name", "ci", "--expires", "3")

    assert set(made) == {"key_id", "key", "access_key", "secret_key"}
    assert [row["name"] for row in served.client(made["key"]).projects.list()] == ["red"]
    assert {row["project"] for row in run_json("keys", "list")["keys"]} == {"red"}
    assert "until" in run("keys", "list").stdout
    rotated = run_json("keys", "rotate", made["key_id"], "--grace", "0")
    assert run_json("keys", "revoke", rotated["key_id"])["revoked"] is True
    others = [key["key_id"] for key in served.client().keys.list() if key["project"] != "red"]
    assert run("keys", "revoke", others[0]).stderr == f"Error: NOT_FOUND: no key {others[0]}\n"
    for name in ("blue", "unknown"):
        refused = run("keys", "create", "--project", name).stderr
        assert refused == f"Error: NOT_FOUND: no project {name}; create it with `trainyard projects create {name}`\n"
    with served.api.db.read() as session:
        assert session.query(AuditEntry).where(AuditEntry.action == "project.create").count() == 0


def test_a_super_admins_typo_makes_no_project(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINYARD_API_KEY", served.api.key)

    refused = run("keys", "create", "--project", "bleu", "--role", "user")

    assert refused.exit_code == 1
    assert refused.stderr.startswith(
        "Error: NOT_FOUND: no project bleu (did you mean blue?); create it with `trainyard"
    )
    assert "bleu" not in [each["name"] for each in run_json("projects", "list")["projects"]]
    run("projects", "create", "green")
    made = run("keys", "create", "--project", "green", "--json")
    assert [row["name"] for row in served.client(json.loads(made.stdout)["key"]).projects.list()] == ["green"]
    assert run("projects", "create", "green").stdout == "green\n"
    assert run_json("queues", "create", "night") == run_json("queues", "create", "night")


def test_webhooks_of_other_teams_do_not_exist(served: Served) -> None:
    with served.api.db.write() as session:
        theirs = make_webhook(session, project="blue").id

    mine = run_json("webhooks", "create", "https://hooks.example.com/")

    assert mine["project"] == "red"
    assert [hook["webhook_id"] for hook in run_json("webhooks", "list")["webhooks"]] == [mine["webhook_id"]]
    sent = run_json("webhooks", "test", mine["webhook_id"])
    assert run_json("webhooks", "deliveries", mine["webhook_id"])["total_count"] == 1
    assert run_json("webhooks", "deliveries", mine["webhook_id"], sent["delivery_id"])["payload"]
    for verb in ("show", "enable", "disable", "test", "delete", "deliveries"):
        assert run("webhooks", verb, theirs).stderr == f"Error: NOT_FOUND: no webhook {theirs}\n"
    assert run("webhooks", "create", "https://hooks.example.com/", "--project", "blue").exit_code == 1


def test_the_audit_log_is_that_of_the_project(served: Served) -> None:
    run_json("webhooks", "create", "https://hooks.example.com/")
    served.client().projects.change("blue", description="x")

    listed = run_json("audit", "list", "--action", "webhook.create", "--limit", "1")
    exported = [json.loads(line) for line in run("audit", "export").stdout.splitlines()]

    assert (listed["total_count"], listed["entries"][0]["project"]) == (1, "red")
    assert {entry["project"] for entry in exported} == {"red"}
    assert run_json("audit", "show", listed["entries"][0]["id"]) == listed["entries"][0]
    assert run("audit", "export", "--csv").stdout.startswith("id,at,project,actor,")
    assert run("audit", "list", "--project", "blue").stderr == "Error: NOT_FOUND: no project blue\n"
    assert run("audit", "list", "--after", "yesterday").exit_code == 2


def test_a_user_gets_no_keys_and_no_audit_log(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINYARD_API_KEY", served.api.make_key(Role.USER, "red"))

    for command in (("keys", "list"), ("keys", "create"), ("audit", "list"), ("audit", "export")):
        refused = run(*command)
        assert (refused.exit_code, refused.stderr.startswith("Error: AUTHZ_PERMISSION_DENIED: ")) == (1, True)
    asked = run("audit", "list", "--json")
    assert json.loads(asked.stderr)["error"]["status"] == 403


@pytest.mark.parametrize("group", ["nodes", "queues", "keys", "projects", "webhooks", "audit", "models"])
def test_without_a_server_one_line_names_every_way_out(group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINYARD_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("TRAINYARD_API_KEY", "ty_x_y")

    refused = run(group, "list")

    assert (refused.exit_code, refused.stderr.count("\n")) == (1, 1)
    for word in ("http://127.0.0.1:9", "`trainyard up`", "TRAINYARD_URL", "--local"):
        assert word in refused.stderr
