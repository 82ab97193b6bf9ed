"""What is another project's answers exactly as what is nowhere, on every route and with every method."""

import re
from typing import Any

import pytest
from werkzeug.routing import Rule

from app.compat.openai.dialect import OPENAI
from app.http.context import dialect_of
from app.http.operation import operation_of
from app.security.permissions import PERMISSIONS, Role
from tests.contract.tenants import Tenant, make_tenant
from tests.systems.apps import Api

UNUSED_ID = "01900000-0000-7000-8000-000000000000"
NO_ORIGIN = {"job_id": f"job-{UNUSED_ID}", "key_id": f"key-{UNUSED_ID}", "webhook_id": f"whk-{UNUSED_ID}"}
ACCEPTS = ("application/json", "text/event-stream")


@pytest.fixture
def tenants(sqlite_api: Api) -> tuple[Tenant, Tenant]:
    return make_tenant(sqlite_api, "alpha"), make_tenant(sqlite_api, "beta")


def rules_about(api: Api, *names: str) -> list[tuple[str, Rule]]:
    """(method, rule) of what has such a value in its path and is open to the admin of a project."""
    found = []
    for rule in api.app.url_map.iter_rules():
        if dialect_of(api.app, rule.rule) is OPENAI and not OPENAI.describes(rule.rule):
            continue  # the same views, below /v1
        permission = operation_of(api.app.view_functions[rule.endpoint]).permission
        if set(names) & rule.arguments and permission in PERMISSIONS[Role.ADMIN]:
            found += [(method, rule) for method in sorted((rule.methods or set()) - {"OPTIONS"})]
    return found


def answer(api: Api, key: str, method: str, path: str, accept: str) -> tuple[int, Any]:
    """Status and text, without what differs from one request to the next."""
    body: dict[str, Any] = {"json": {"priority": 1} if "/jobs/" in path else {}} if method == "PATCH" else {}
    if method == "POST" and path.endswith("/sessions"):
        body = {"json": {"kind": "shell"}}
    got = api.call(method, path, key=key, headers={"Accept": accept}, **body)
    text = re.sub(r"req_[0-9a-f]+", "REQUEST", got.get_data(as_text=True))
    return got.status_code, {"text": text, "type": got.content_type}


@pytest.mark.long
@pytest.mark.parametrize("name", ["job_id", "key_id", "webhook_id"])
def test_objects_of_other_projects_look_missing(sqlite_api: Api, tenants: tuple[Tenant, Tenant], name: str):
    foreign, caller = tenants
    differing = []
    for method, rule in rules_about(sqlite_api, name):
        pattern = rule.rule.replace("<path:path>", "model.safetensors").replace("<delivery_id>", "x")
        for foreign_id in foreign.ids[name]:
            for accept in ACCEPTS:
                theirs = answer(sqlite_api, caller.key, method, pattern.replace(f"<{name}>", foreign_id), accept)
                missing = answer(sqlite_api, caller.key, method, pattern.replace(f"<{name}>", NO_ORIGIN[name]), accept)
                missing[1]["text"] = missing[1]["text"].replace(NO_ORIGIN[name], foreign_id)
                if theirs != missing or theirs[0] not in (404, 501):
                    differing.append((method, rule.rule, theirs, missing))

    assert differing == []


def test_own_ids_are_found(sqlite_api: Api, tenants: tuple[Tenant, Tenant]):
    """Or the test above would say nothing."""
    owner = tenants[0]

    statuses = {
        path: sqlite_api.call("GET", f"/v1/jobs/{owner.ids['job_id'][2]}{path}", key=owner.key).status_code
        for path in (
            "",
            "/events",
            "/metrics",
            "/checkpoints",
            "/attempts",
            "/artifacts",
            "/tensorboard",
            "/artifacts/model.safetensors",
        )
    }

    assert statuses == dict.fromkeys(statuses, 200)


def test_lists_show_the_own_project_alone(sqlite_api: Api, tenants: tuple[Tenant, Tenant]):
    foreign, caller = tenants
    lists = [
        rule.rule
        for rule in sqlite_api.app.url_map.iter_rules()
        if "page_token" in operation_of(sqlite_api.app.view_functions[rule.endpoint]).query.fields
        and not rule.arguments
        and (rule.methods or set()) & {"GET"}
    ]
    assert len(lists) > 10

    answers = {path: sqlite_api.call("GET", f"{path}?page_size=100", key=caller.key) for path in lists}

    assert {path: got.status_code for path, got in answers.items() if got.status_code not in (200, 403)} == {}
    revealing = {
        path
        for path, got in answers.items()
        if foreign.mark in got.text or "alpha" in got.text.replace("node-alpha", "")
    }
    assert revealing == set()


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Project": "alpha"},
        {"X-Project": "ALPHA"},
        {"X-Project": "alpha, beta"},
        {"X-Project": "../alpha"},
        {"X-Project": ""},
        {"X-Project": "x" * 300},
    ],
)
def test_the_header_opens_no_other_project(sqlite_api: Api, tenants: tuple[Tenant, Tenant], headers: dict[str, str]):
    foreign, caller = tenants

    got = sqlite_api.call("GET", "/v1/jobs", key=caller.key, headers=headers)

    assert got.status_code == 404
    assert foreign.mark not in got.text


def test_an_idempotency_key_is_of_its_project(sqlite_api: Api, tenants: tuple[Tenant, Tenant]):
    body, headers = {"name": "one", "role": "viewer"}, {"Idempotency-Key": "the-same"}

    first, second = (sqlite_api.post("/v1/keys", body, key=one.key, headers=headers) for one in tenants)

    assert (first.status_code, second.status_code) == (201, 201)
    assert sqlite_api.data(first, 201)["key"] != sqlite_api.data(second, 201)["key"]
    assert "Idempotency-Replayed" not in second.headers


def test_a_validator_tells_nothing_to_others(sqlite_api: Api, tenants: tuple[Tenant, Tenant]):
    owner, other = tenants
    path = f"/v1/jobs/{owner.ids['job_id'][2]}/artifacts/model.safetensors"
    etag = sqlite_api.call("GET", path, key=owner.key).headers["ETag"]

    got = [
        sqlite_api.call("GET", path, key=other.key, headers=headers)
        for headers in ({"If-None-Match": etag}, {"If-Range": etag, "Range": "bytes=0-1"}, {"If-Match": etag})
    ]

    assert [one.status_code for one in got] == [404, 404, 404]
