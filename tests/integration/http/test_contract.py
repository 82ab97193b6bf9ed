"""What holds for every endpoint: who may call it, the envelope, both base paths, and the description."""

import re
from pathlib import Path

import pytest
from flask.testing import FlaskClient
from werkzeug.routing import Rule

from app.api.not_built import NOT_BUILT
from app.compat.openai.dialect import BASE, OPENAI
from app.database.engine import Database
from app.factory import FOREIGN
from app.http.context import dialect_of
from app.http.dialect import NATIVE, Dialect
from app.http.operation import operation_of
from app.security.permissions import PERMISSIONS, Role
from app.services.access import api_keys
from app.services.access.api_keys import ADMINISTRATOR
from tests.builders.factories import make_document
from tests.systems.apps import Api

JOB = "job-01900000-0000-7000-8000-000000000000"


def routes(api: Api) -> list[tuple[str, str, Rule]]:
    """(method, path that names nothing existing, rule) of everything the application serves."""
    found, values = [], {"job_id": JOB, "path": "model.safetensors"}
    for rule in api.app.url_map.iter_rules():
        path = re.sub(r"<(?:\w+:)?(\w+)>", lambda part: values.get(part[1], "nothing"), rule.rule)
        found += [(method, path, rule) for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"})]
    return found


def native(api: Api, path: str) -> bool:
    return dialect_of(api.app, path) is NATIVE


@pytest.mark.long
def test_every_route_refuses_callers_without_a_good_key(database: Database, tmp_path: Path):
    # So many wrong keys at once are refused with 429.
    api = Api(database, tmp_path, TRAINYARD_API_WRONG_KEYS_PER_SECOND="0")
    another = "y" if api.key.endswith("x") else "x"
    kinds = {
        "": "AUTH_TOKEN_MISSING",
        "Bearer nonsense": "AUTH_TOKEN_INVALID",
        f"Basic {api.key}": "AUTH_TOKEN_INVALID",
        f"Bearer {api.key[:-1]}{another}": "AUTH_TOKEN_INVALID",
        "Bearer " + "x" * 5000: "AUTH_TOKEN_INVALID",
    }
    closed = [(m, p) for m, p, rule in routes(api) if operation_of(api.app.view_functions[rule.endpoint]).permission]
    assert len(closed) > 60

    answers = {
        (method, path, header[:20]): api.client.open(path, method=method, headers={"Authorization": header})
        for method, path in closed
        for header in kinds
    }

    assert {key: answer.status_code for key, answer in answers.items()} == dict.fromkeys(answers, 401)
    assert {answer.headers["WWW-Authenticate"] for answer in answers.values()} == {'Bearer realm="trainyard"'}
    codes = {
        (key[2], answer.json["error"]["code"]) for key, answer in answers.items() if answer.json and native(api, key[1])
    }
    assert codes == {(header[:20], code) for header, code in kinds.items()}


def test_open_routes_are_these_alone(api: Api):
    opened = {p for _, p, rule in routes(api) if operation_of(api.app.view_functions[rule.endpoint]).permission is None}

    assert {path for path in opened if native(api, path)} == {
        "/health",
        "/health/ready",
        "/v1/openapi.json",
        "/v1/docs",
        "/v1/modules/scaimind/openapi.json",
        "/v1/modules/scaimind/docs",
    }
    assert {path.rpartition("/")[2] for path in opened if not native(api, path)} == {
        "openapi.json",
        "messages.proto",
        "token",
        "api",
        "apis",
        "ome.io",
        "v1beta1",
        "v1",
        "v2",
        "version",  # what Kubernetes' clients ask first
    }


@pytest.mark.long
def test_every_role_may_do_exactly_what_the_table_says(api: Api):
    keys_by_role = {role: api.make_key(role) for role in (Role.INFERENCE, Role.VIEWER, Role.USER, Role.ADMIN)}
    expected, got = {}, {}
    for method, path, rule in routes(api):
        permission = operation_of(api.app.view_functions[rule.endpoint]).permission
        if permission is None or rule.rule.startswith("/v1/modules"):
            continue
        for role, key in keys_by_role.items():
            answer = api.call(method, path, key=key)
            expected[role, method, path] = permission not in PERMISSIONS[role]
            got[role, method, path] = answer.status_code == 403
            assert answer.status_code < 500 or answer.status_code == 501

    assert got == expected


def test_revoked_and_expired_keys_are_refused_at_once(api: Api):
    revoked = api.make_key(Role.USER, name="soon revoked")
    row = next(key for key in api.get("/v1/keys")["keys"] if key["name"] == "soon revoked")
    assert api.call("GET", "/v1/jobs", key=revoked).status_code == 200

    api_keys.revoke(api.db, ADMINISTRATOR, row["key_id"])

    assert api.problem(api.call("GET", "/v1/jobs", key=revoked), 401)["code"] == "AUTH_TOKEN_INVALID"
    expired = api.make_key(Role.USER, expires_days=0)
    assert api.problem(api.call("GET", "/v1/jobs", key=expired), 401)["code"] == "AUTH_TOKEN_INVALID"


def test_both_base_paths_serve_the_same(api: Api):
    job_id = api.submit()

    answer = api.post("/v1/modules/scaimind/jobs", make_document())

    assert answer.headers["Location"].startswith("/v1/modules/scaimind/jobs/job-")
    assert api.get(answer.headers["Location"])["status"] == "PENDING"
    assert api.get(f"/v1/modules/scaimind/jobs/{job_id}")["job_id"] == job_id


def test_what_is_not_built_says_so_after_authentication(api: Api):
    answers = {
        (method, path): api.call(method, "/v1" + path.replace("<job_id>", JOB).replace("<name>", "x"))
        for method, path, _ in NOT_BUILT
    }

    assert {key: answer.status_code for key, answer in answers.items()} == dict.fromkeys(answers, 501)
    assert {api.problem(answer, 501)["code"] for answer in answers.values()} == {"NOT_IMPLEMENTED"}


def test_parts_of_what_is_not_built_are_not_built_either(api: Api):
    paths = ("/v1/projects/default/quota", "/v1/projects/default/a/b")

    assert {path: api.call("GET", path).status_code for path in paths} == dict.fromkeys(paths, 501)


def test_documentation_lists_exactly_the_endpoints_there_are(sqlite_api: Api):
    page = (Path(__file__).parents[3] / "docs/reference/api.md").read_text()
    listed = page[page.index("## Endpoints") : page.index("## Streams")]
    documented = re.findall(r"`(GET|POST|PUT|PATCH|DELETE) (/[^` ]*)`", listed)
    served = {
        (method, re.sub(r"<[^>]*>", "{}", rule.rule))
        for method, path, rule in routes(sqlite_api)
        if native(sqlite_api, path) and not rule.rule.startswith("/v1/modules")
    }

    assert len(documented) == len(set(documented))
    assert {(method, re.sub(r"{[^}]*}", "{}", path)) for method, path in documented} == served


def _prefix(dialect: Dialect) -> str:
    if dialect is OPENAI:
        return BASE
    return dialect.bases[0] if dialect.prefix is None else dialect.prefix


@pytest.mark.parametrize("dialect", FOREIGN, ids=lambda dialect: dialect.name)
def test_documentation_lists_the_endpoints_of_every_vocabulary(sqlite_api: Api, dialect: Dialect):
    page = "openai.md" if dialect is OPENAI else "other-vocabularies.md"
    text = (Path(__file__).parents[3] / "docs/reference" / page).read_text()
    sections = {re.sub("[^a-z]", "", each.split("\n")[0].lower()): each for each in re.split(r"\n##+ ", text)}
    section = sections["endpoints" if dialect is OPENAI else dialect.name]
    documented = re.findall(r"`(GET|POST|PUT|PATCH|DELETE) (/[^`? ]*)[^`]*`", section)
    served = {
        (method, re.sub(r"<[^>]*>", "{}", rule.rule).removeprefix(_prefix(dialect)))
        for method, path, rule in routes(sqlite_api)
        if dialect_of(sqlite_api.app, path) is dialect and dialect.describes(rule.rule)
    }

    assert {(method, re.sub(r"{[^}]*}", "{}", path)) for method, path in documented} == served


def test_unknown_paths_and_methods_answer_in_the_envelope(api: Api):
    statuses = {
        ("GET", "/v1/nothing"): 404,
        ("GET", "/"): 404,
        ("GET", "/v1/jobs/"): 404,
        ("GET", "//v1/jobs"): 404,
        ("GET", "/V1/jobs"): 404,
        ("PUT", "/v1/jobs"): 405,
        ("TRACE", "/v1/jobs"): 405,
        ("PROPFIND", "/v1/jobs"): 405,
        ("DELETE", "/v1/nodes"): 405,
        ("GET", "/.git/config"): 404,
    }

    got = {(method, path): api.call(method, path) for method, path in statuses}

    assert {key: answer.status_code for key, answer in got.items()} == statuses
    assert all(answer.json and answer.json["error"]["code"] for answer in got.values())
    assert "POST" in got["PUT", "/v1/jobs"].headers["Allow"]


def test_answers_are_neither_cached_nor_guessed(api: Api):
    answer = api.call("GET", "/v1/jobs")

    assert answer.headers["Cache-Control"] == "private, no-store"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.json is not None
    assert answer.headers["X-Request-ID"] == answer.json["meta"]["request_id"]


def test_database_that_is_away_is_said_and_not_hidden(sqlite_api: Api, tmp_path):
    client: FlaskClient = sqlite_api.client
    sqlite_api.db.close()
    for file in tmp_path.glob("trainyard.db*"):
        file.rename(file.with_suffix(".away"))

    answer = client.post("/v1/jobs", json=make_document(), headers={"Authorization": f"Bearer {sqlite_api.key}"})

    problem = sqlite_api.problem(answer, 503)
    assert problem["code"] == "UNAVAILABLE"
    assert problem["retry_after"] > 0
    assert answer.headers["Retry-After"]


def test_description_names_every_route_and_the_page_needs_nothing_else(api: Api):
    description = api.client.get("/v1/openapi.json").json
    page = api.client.get("/v1/docs").get_data(as_text=True)

    assert description is not None
    assert description["openapi"] == "3.1.0"
    assert "/v1/jobs/{job_id}/artifacts/{path}" in description["paths"]
    served = {
        rule.rule.replace("<path:", "{").replace("<", "{").replace(">", "}")
        for _, path, rule in routes(api)
        if native(api, path) and not rule.rule.startswith("/v1/modules")
    }
    assert set(description["paths"]) == served
    assert set(description["components"]["schemas"]) >= {"SubmitJob", "Job", "TrainingConfig", "Error"}
    assert "src=" not in page
    assert "http" not in page
