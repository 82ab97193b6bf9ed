"""Odd credentials, headers, methods and paths: each has its one right answer, and none of it is a 5xx."""

import logging
import re

import pytest

from app.compat.openai.multipart import MEDIA_TYPE as MULTIPART
from app.http.operation import operation_of
from app.security.permissions import PERMISSIONS, Role
from tests.builders.factories import make_document
from tests.systems.apps import Api

pytestmark = pytest.mark.both_databases

JOB = "job-01900000-0000-7000-8000-000000000000"


# ---- credentials


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        " ",
        "Bearer",
        "Bearer ",
        "Basic dXNlcjpwYXNz",
        "Bearer ü",
        "Bearer \udce4",
        "Bearer " + "x" * 10_000,
        "Token x",
        "Bearer ty_000000000000_" + "0" * 38,
        "bearer:x",
        "Bearer a b",
        "Digest username=x",
        'Bearer "x"',
        "Bearer null",
    ],
)
def test_what_is_no_key_is_refused(sqlite_api: Api, authorization: str):
    environ = {"HTTP_AUTHORIZATION": authorization} if authorization else {}

    got = sqlite_api.client.get("/v1/jobs", environ_overrides=environ)

    assert sqlite_api.problem(got, 401)["code"] == (
        "AUTH_TOKEN_INVALID" if authorization.strip() else "AUTH_TOKEN_MISSING"
    )
    assert got.headers["WWW-Authenticate"] == 'Bearer realm="trainyard"'


def test_every_kind_of_wrong_key_gets_the_same_answer(sqlite_api: Api):
    good = sqlite_api.make_key(Role.USER)
    prefix, secret = good.rsplit("_", 1)
    wrong_secret = f"{prefix}_{'0' * 32}{secret[32:]}"
    wrong_checksum = f"{good[:-6]}{'0' * 6}"
    unknown = f"ty_{'0' * 12}_{secret}"
    expired = sqlite_api.make_key(Role.USER, expires_days=0)

    answers = {
        re.sub(r"req_[0-9a-f]+", "", sqlite_api.call("GET", "/v1/jobs", key=key).get_data(as_text=True))
        for key in (wrong_secret, wrong_checksum, unknown, expired)
    }

    assert len(answers) == 1
    assert "unknown, revoked or expired" in answers.pop()


@pytest.mark.parametrize("name", ["key", "api_key", "access_token", "token", "Authorization"])
def test_a_key_in_the_query_opens_nothing_and_is_not_logged(
    sqlite_api: Api, caplog: pytest.LogCaptureFixture, name: str
):
    with caplog.at_level(logging.DEBUG):
        got = sqlite_api.client.get(f"/v1/jobs?{name}={sqlite_api.key}")

    assert got.status_code == 401
    assert sqlite_api.key not in caplog.text
    assert sqlite_api.key not in got.text


def test_nothing_sets_a_cookie_and_no_cookie_opens_anything(sqlite_api: Api):
    opened = sqlite_api.call("GET", "/v1/jobs")
    by_cookie = sqlite_api.client.get("/v1/jobs", headers={"Cookie": f"session={sqlite_api.key}; key={sqlite_api.key}"})

    assert "Set-Cookie" not in opened.headers
    assert by_cookie.status_code == 401


# ---- who is asked, and from where


def test_host_and_forwarding_headers_are_reflected_nowhere(sqlite_api: Api):
    headers = {
        "Host": "evil.example",
        "X-Forwarded-Host": "evil.example",
        "X-Forwarded-Proto": "gopher",
        "X-Forwarded-Prefix": "/evil.example",
        "Forwarded": "host=evil.example",
        "X-Original-URL": "/v1/keys",
    }

    got = [
        sqlite_api.call("POST", "/v1/jobs", json=make_document(), headers=headers),
        sqlite_api.call("GET", "/v1/nothing", headers=headers),
        sqlite_api.call("GET", "/v1/jobs/", headers=headers),
    ]

    assert [one.status_code for one in got] == [201, 404, 404]
    assert [one for one in got if "evil" in f"{one.headers}{one.text}"] == []
    assert got[0].headers["Location"].startswith("/v1/jobs/job-")


@pytest.mark.parametrize("method", ["OPTIONS", "GET", "POST"])
def test_no_other_origin_is_let_in(sqlite_api: Api, method: str):
    headers = {
        "Origin": "https://evil.example",
        "Access-Control-Request-Method": "DELETE",
        "Sec-Fetch-Site": "cross-site",
    }

    got = sqlite_api.call(method, "/v1/jobs", headers=headers)

    assert [name for name, _ in got.headers if name.lower().startswith("access-control-")] == []


def _path(rule: str) -> str:
    """Within a project that is there, something that is not."""
    return re.sub(r"<[^>]*>", JOB, re.sub(r"<(?:project_id|namespace)>", "default", rule))


def test_a_form_of_another_site_can_send_nothing(sqlite_api: Api):
    """A browser sends these without asking first; what is not JSON is not read.

    Kubernetes reads a body without a type as JSON, and so do its paths here: there the key in a header, which no
    browser sends by itself, is what keeps forms out.
    """
    kinds = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "")
    taking = [
        (method, _path(rule.rule), declared.takes)
        for rule in sqlite_api.app.url_map.iter_rules()
        if (declared := operation_of(sqlite_api.app.view_functions[rule.endpoint])).body is not None
        for method in (rule.methods or set()) & {"POST", "PUT", "PATCH"}
    ]
    assert len(taking) > 10

    got = {
        (method, path, kind): sqlite_api.call(method, path, data=b'{"name": "x"}', headers={"Content-Type": kind})
        for method, path, takes in taking
        for kind in kinds
        if (kind or not path.startswith("/apis/")) and not (kind.startswith(MULTIPART) and takes == MULTIPART)
    }
    typeless = {"data": b"{}", "headers": {"Content-Type": ""}}
    without_key = sqlite_api.client.post("/apis/ome.io/v1beta1/namespaces/default/trainingjobs", **typeless)

    assert {key: one.status_code for key, one in got.items()} == dict.fromkeys(got, 415)
    assert without_key.status_code == 401


# ---- paths and methods


def test_no_trick_with_the_path_reaches_another_rule(sqlite_api: Api):
    viewer = sqlite_api.make_key(Role.VIEWER)
    tricks = {
        "/v1/keys/": 404,
        "//v1/keys": 404,
        "/v1//keys": 404,
        "/v1/keys;x=1": 404,
        "/v1/keys%2f": 404,
        "/v1/Keys": 404,
        "/V1/keys": 404,
        "/v1/./keys": 404,
        "/v1/jobs/../keys": 404,
        "/v1/%6beys": 403,
        "/v1/keys%00": 404,
        "/v1/jobs/%2e%2e/keys": 404,
        "/v1/keys?": 403,
        "/v1/keys#x": 403,
        "/v1/keys%20": 404,
        "/v1/\\keys": 404,
        "/v0/jobs": 404,
        "/api/v1/jobs": 404,
        "/debug": 404,
        "/.git/config": 404,
        "/static/../app": 404,
        "/v1": 404,
    }

    got = {path: sqlite_api.call("GET", path, key=viewer).status_code for path in tricks}

    assert got == tricks


@pytest.mark.parametrize("name", ["X-HTTP-Method-Override", "X-Method-Override", "X-HTTP-Method", "_method"])
def test_no_header_changes_the_method(sqlite_api: Api, name: str):
    job_id = sqlite_api.submit()

    got = sqlite_api.call("GET", f"/v1/jobs/{job_id}?", headers={name: "DELETE"})

    assert got.status_code == 200
    assert sqlite_api.get(f"/v1/jobs/{job_id}")["status"] == "PENDING"


def test_methods_are_taken_or_named(sqlite_api: Api):
    statuses = {
        "HEAD": 200,
        "OPTIONS": 200,
        "TRACE": 405,
        "PUT": 405,
        "PATCH": 405,
        "DELETE": 405,
        "PROPFIND": 405,
        "CONNECT": 405,
        "NONSENSE": 405,
    }

    got = {method: sqlite_api.call(method, "/v1/jobs") for method in statuses}

    assert {method: one.status_code for method, one in got.items()} == statuses
    allowed = {tuple(sorted(one.headers["Allow"].split(", "))) for one in got.values() if one.status_code == 405}
    assert allowed == {("GET", "HEAD", "OPTIONS", "POST")}
    assert got["HEAD"].get_data() == b""


NO_IDS = [
    "-1",
    "0",
    "0x10",
    "1e3",
    "\uff11\uff12",
    str(2**63),
    str(2**200),
    "{01900000-0000-7000-8000-000000000000}",
    "null",
    "job-",
    "JOB-01900000-0000-7000-8000-000000000000",
    JOB + "x",
    JOB.replace("-", "_"),
    "' OR 1=1--",
    "%25",
    "job-%",
    "*",
    ".",
    "job-01900000-0000-7000-8000-00000000000Ü",
    "\u202e",
    "a" * 4000,
]


def test_what_is_no_id_is_not_found(api: Api):
    for job_id in NO_IDS:
        assert api.problem(api.call("GET", f"/v1/jobs/{job_id}"), 404)["code"] == "NOT_FOUND", job_id


def test_errors_show_the_path_as_text_alone(sqlite_api: Api):
    got = sqlite_api.call("GET", "/v1/<script>alert(1)</script>")
    missing = sqlite_api.call("GET", "/v1/jobs/<img src=x onerror=alert(1)>")

    assert (got.status_code, missing.status_code) == (404, 404)
    assert got.content_type == missing.content_type == "application/json"
    assert got.headers["X-Content-Type-Options"] == "nosniff"
    assert "script" not in got.text
    assert "Server" not in got.headers
    assert "Werkzeug" not in f"{got.headers}{got.text}"


# ---- what a key may do to itself


def test_no_key_raises_its_own_role(sqlite_api: Api):
    admin = sqlite_api.make_key(Role.ADMIN)
    mine = next(row for row in sqlite_api.get("/v1/keys", key=admin)["keys"] if row["role"] == "admin")

    got = {
        "higher": sqlite_api.post("/v1/keys", {"role": "super_admin"}, key=admin).status_code,
        "elsewhere": sqlite_api.post("/v1/keys", {"role": "user", "project": "other"}, key=admin).status_code,
        "changed": sqlite_api.call(
            "PATCH", f"/v1/keys/{mine['key_id']}", json={"role": "super_admin"}, key=admin
        ).status_code,
        "put": sqlite_api.call(
            "PUT", f"/v1/keys/{mine['key_id']}", json={"role": "super_admin"}, key=admin
        ).status_code,
    }

    assert got == {"higher": 403, "elsewhere": 404, "changed": 422, "put": 405}


def test_a_key_of_a_viewer_writes_nowhere(sqlite_api: Api):
    viewer = sqlite_api.make_key(Role.VIEWER)
    allowed = {None, *PERMISSIONS[Role.VIEWER]}
    writing = [
        (method, _path(rule.rule))
        for rule in sqlite_api.app.url_map.iter_rules()
        if operation_of(sqlite_api.app.view_functions[rule.endpoint]).permission not in allowed
        for method in (rule.methods or set()) & {"POST", "PUT", "PATCH", "DELETE"}
    ]

    got = {(method, path): sqlite_api.call(method, path, json={}, key=viewer).status_code for method, path in writing}

    assert got == dict.fromkeys(got, 403)
