"""The description itself: valid, whole, with examples that are taken, and a page that can only show text."""

import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest

from app.http.description import description
from app.http.dialect import NATIVE
from app.http.operation import operation_of
from app.http.request_body import validated
from app.security.permissions import Role
from tests.systems.apps import Api

REFUSED = {"401", "422", "429", "503"}


@pytest.fixture
def described(sqlite_api: Api) -> dict[str, Any]:
    return description(sqlite_api.app, NATIVE)


def operations(described: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def everything(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from everything(child)


def test_every_schema_is_one_and_every_reference_leads_somewhere(described: dict[str, Any]):
    schemas = described["components"]["schemas"]

    for schema in schemas.values():
        jsonschema_rs.meta.validate(schema)
    references = {node["$ref"] for node in everything(described) if isinstance(node.get("$ref"), str)}

    assert references == {f"#/components/schemas/{name}" for name in schemas}


def test_operations_have_names_tags_and_answers_of_their_own(described: dict[str, Any]):
    found = dict(operations(described))
    tags = {tag["name"] for tag in described["tags"]}

    assert len({operation["operationId"] for operation in found.values()}) == len(found)
    assert [name for name, operation in found.items() if not set(operation["tags"]) <= tags] == []
    closed = {name: set(operation["responses"]) for name, operation in found.items() if "security" in operation}
    assert {name: REFUSED - answers for name, answers in closed.items() if REFUSED - answers} == {}
    assert {
        name for name, operation in found.items() if "409" in operation["responses"] and name.startswith("GET")
    } == set()


def test_what_some_keys_may_not_do_is_described_as_forbidden(described: dict[str, Any]):
    found = dict(operations(described))

    assert "403" in found["GET /v1/jobs"]["responses"]  # a key of role inference
    assert "403" not in found["GET /health"]["responses"]
    assert "403" in found["POST /v1/jobs"]["responses"]
    assert {"201", "200"} <= set(found["POST /v1/jobs"]["responses"])
    assert found["POST /v1/jobs"]["responses"]["201"]["headers"]["Location"]
    assert found["GET /v1/jobs"]["responses"]["429"]["headers"]["Retry-After"]
    assert {"200", "206", "416"} <= set(found["GET /v1/jobs/{job_id}/artifacts/{path}"]["responses"])
    assert set(found["GET /v1/jobs/{job_id}/events"]["responses"]["200"]["content"]) == {
        "application/json",
        "text/event-stream",
    }


def test_patterns_mean_the_same_everywhere(described: dict[str, Any]):
    patterns = {node["pattern"] for node in everything(described) if isinstance(node.get("pattern"), str)}

    assert len(patterns) > 3
    assert [pattern for pattern in patterns if "\\Z" in pattern or pattern[0] + pattern[-1] != "^$"] == []


def test_optional_fields_of_a_document_may_be_null(described: dict[str, Any]):
    properties = described["components"]["schemas"]["TrainingConfig"]["properties"]

    assert properties["max_retries"]["type"] == ["integer", "null"]
    assert properties["training_type"]["type"] == ["string", "null"]  # null: of a CUSTOM job alone
    assert described["components"]["schemas"]["Framework"]["properties"]["type"]["type"] == "string"
    assert {"type": "null"} in properties["evaluation"]["anyOf"]


def test_answers_have_all_their_fields(described: dict[str, Any]):
    job = described["components"]["schemas"]["Job"]

    assert job["required"] == sorted({*job["properties"]} - {"tasks"})  # which only jobs with roles have


def test_every_example_is_a_good_one(sqlite_api: Api, described: dict[str, Any]):
    schemas = {
        type(body).__name__.removesuffix("Schema"): body
        for view in sqlite_api.app.view_functions.values()
        if (body := operation_of(view).body) is not None
    }
    checked = []
    for name, operation in operations(described):
        content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        if "example" in content:
            validated(schemas[content["schema"]["$ref"].rpartition("/")[2]], content["example"])
            checked.append(name)

    assert {"POST /v1/jobs", "POST /v1/keys", "POST /v1/data/validate"} <= set(checked)
    example = dict(operations(described))["POST /v1/jobs"]["requestBody"]["content"]["application/json"]["example"]
    assert sqlite_api.post("/v1/jobs", example).status_code == 201


def test_the_page_writes_text_alone(sqlite_api: Api):
    answer = sqlite_api.client.get("/v1/docs")

    page, policy = answer.text, answer.headers["Content-Security-Policy"]

    assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|srcdoc|\son[a-z]+=", page) == []
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert "localStorage" not in page


def test_the_description_is_the_same_for_everybody(sqlite_api: Api):
    viewer = sqlite_api.make_key(Role.VIEWER)

    answers = [sqlite_api.client.get("/v1/openapi.json"), sqlite_api.call("GET", "/v1/openapi.json", key=viewer)]

    assert answers[0].get_data() == answers[1].get_data()
