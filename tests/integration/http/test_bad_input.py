"""Input that is wrong in every way we could think of: each gets its status, and none of it a 5xx."""

import json

import pytest

from tests.builders.factories import make_document
from tests.systems.apps import Api

pytestmark = pytest.mark.both_databases

JOB = "job-01900000-0000-7000-8000-000000000000"


def nested(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


DOCUMENT = json.dumps(make_document())
# Deeper than any document may be, were these brackets not in a text.
BRACKETS = {"environment": {"BRACKETS": "[" * 40 + "]" * 40}}
# The raw body of POST /v1/jobs → the status it must get.
RAW_BODIES: dict[bytes, int] = {
    b"": 400,
    b"null": 400,
    b"[]": 400,
    b'"x"': 400,
    b"5": 400,
    b"{": 400,
    b"\xef\xbb\xbf{}": 400,
    b"{} x": 400,
    b"{'a':1}": 400,
    b"\xff\xfe{\x00}\x00": 400,
    b'{"name":"\xff"}': 400,
    b'{"name":NaN}': 400,
    b'{"name":Infinity}': 400,
    b'{"name":-Infinity}': 400,
    b'{"name":1e999}': 400,
    b'{"name":' + b"9" * 5000 + b"}": 400,
    b'{"name":"a","name":"b"}': 400,
    b"[" * 100_000: 400,
    nested(33).encode(): 400,
    nested(900).encode(): 400,
    nested(32).encode(): 422,
    b'{"name":"a\x00b"}': 400,
    DOCUMENT.encode("utf-16"): 400,
    json.dumps(make_document(training_config=BRACKETS)).encode(): 201,
    b'{"name":"a\\u0000b"}': 422,
    b'{"name":"\\ud800"}': 422,
    b'{"na\\u0000me":"b"}': 422,
    b"{}": 422,
    b'{"nam":"x"}': 422,
    b'{"_schema":"x","__proto__":{}}': 422,
    b" " * 1_048_577: 413,
}


def test_raw_bodies_get_their_status(api: Api):
    headers = {"Content-Type": "application/json"}

    got = [(api.call("POST", "/v1/jobs", data=raw, headers=headers).status_code, raw[:60]) for raw in RAW_BODIES]

    assert got == [(status, raw[:60]) for raw, status in RAW_BODIES.items()]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/json; charset=utf-7"}, 415),
        ({"Content-Type": "multipart/form-data"}, 415),
        ({}, 415),
        ({"Content-Type": "application/json", "Content-Encoding": "gzip"}, 415),
        ({"Content-Type": "application/json; charset=UTF-8"}, 201),
        ({"Content-Type": "application/json", "Idempotency-Key": "x" * 256}, 400),
        ({"Content-Type": "application/json", "Idempotency-Key": "a b"}, 400),
    ],
)
def test_only_json_is_taken(sqlite_api: Api, headers: dict[str, str], status: int):
    assert sqlite_api.call("POST", "/v1/jobs", data=DOCUMENT, headers=headers).status_code == status


PATHS: dict[str, int] = {
    f"/v1/jobs/{2**63}": 404,
    "/v1/jobs/-1": 404,
    "/v1/jobs/%00": 404,
    f"/v1/jobs/{JOB}%0a": 404,
    "/v1/jobs/%F0%9F%98%80": 404,
    "/v1/jobs/%ff%fe": 404,
    "/v1/jobs/..%2f..%2fetc": 404,
    f"/v1/jobs/{JOB}/artifacts/..%2f..%2fetc%2fpasswd": 404,
    f"/v1/jobs/{JOB}/artifacts/%00": 404,
    "/v1/nodes/%00": 404,
    f"/v1/nodes/{'x' * 5000}": 404,
    "/v1/projects/%00": 404,
    "/v1/projects/nothing": 404,
    "/v1/jobs?page_size=0": 422,
    "/v1/jobs?page_size=101": 422,
    "/v1/jobs?page_size=1e2": 422,
    f"/v1/jobs?page_size={'9' * 400}": 422,
    "/v1/jobs?page_size=%EF%BC%91%EF%BC%92": 422,
    "/v1/jobs?page_size=5&page_size=6": 422,
    "/v1/jobs?page_token=": 200,
    "/v1/jobs?page_token=x": 400,
    "/v1/jobs?order_by=password": 422,
    "/v1/jobs?order_by=created_at;drop": 422,
    "/v1/jobs?status=DONE": 422,
    "/v1/jobs?fields=secret": 422,
    "/v1/jobs?q=%25": 422,
    "/v1/jobs?name=%00": 422,
    "/v1/jobs?name=%25": 200,
    "/v1/jobs?labels.=x": 422,
    "/v1/jobs?labels.a%20b=x": 422,
    "/v1/jobs?labels.a=%27%20OR%201%3D1--": 200,
    "/v1/jobs?created_after=yesterday": 422,
    "/v1/jobs?created_after=2026-02-30T00:00:00Z": 422,
    "/v1/jobs?created_after=2026-01-01T00:00:00": 422,
    "/v1/jobs?created_after=0001-01-01T00:00:00%2B23:00": 422,
    "/v1/jobs?created_after=9999-12-31T23:59:59-23:00": 422,
    "/v1/jobs?project=nothing": 404,
    "/v1/jobs?framework=JAX": 422,
    "/v1/queue?order_by=secret": 422,
    f"/v1/jobs?parent_job_id={'x' * 65}": 422,
}


def test_odd_paths_and_queries_get_their_status(api: Api):
    got = {path: api.call("GET", path).status_code for path in PATHS}

    assert got == PATHS


def test_verbs_take_an_empty_body_and_refuse_unknown_fields(api: Api):
    cancel = f"/v1/jobs/{api.submit()}/cancel"

    assert api.post(cancel, {"reasons": "x"}).status_code == 422
    assert api.post(cancel, {"reason": 5}).status_code == 422
    assert api.call("POST", cancel, data=b"", headers={"Content-Type": "text/plain"}).status_code == 200


def test_body_without_a_length_is_limited_too(sqlite_api: Api):
    answer = sqlite_api.client.post(
        "/v1/jobs",
        headers={"Authorization": f"Bearer {sqlite_api.key}", "Content-Type": "application/json"},
        environ_overrides={"wsgi.input_terminated": True, "wsgi.input": Endless()},
    )

    assert sqlite_api.problem(answer, 413)["code"] == "BODY_TOO_LARGE"


class Endless:
    """A client that never stops sending."""

    def read(self, size: int = -1) -> bytes:
        return b" " * (size if size > 0 else 65536)

    def readinto(self, buffer: bytearray) -> int:
        buffer[:] = b" " * len(buffer)
        return len(buffer)

    def close(self) -> None:
        """Holds nothing."""
