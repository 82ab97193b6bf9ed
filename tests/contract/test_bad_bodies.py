"""Odd queries and bodies: each gets the one right answer in time, and the answer names what is wrong."""

import time
from typing import Any

import pytest

from tests.builders.factories import make_document
from tests.systems.apps import Api

pytestmark = pytest.mark.both_databases


@pytest.mark.parametrize(
    "query",
    [
        "fields=secret",
        "include=sealed_secrets",
        "expand=keys",
        "q=%25",
        "sort=password",
        "order_by=secret_hash",
        "limit=1000000000",
        "offset=1000000000",
        "page_size=1000000000",
        "page_size=-1",
        "filter=x",
        "order_by=created_at%3Bdrop%20table%20job",
        "order_by=",
        "status=",
        "created_after=2026-02-30T00:00:00Z",
        "created_after=2026-01-01T00:00:00%2B24:00",
        "created_after=99999-01-01T00:00:00Z",
        "created_after=2026-01-01T25:00:00Z",
        "created_after=1",
        "labels.=",
        "labels=x",
        "project=",
        "name=",
        "cursor=x",
        "status=COMPLETED&status=DONE",
        "page_size=1.0",
        "page_size=%2B5",
    ],
)
def test_a_query_that_means_nothing_is_refused_and_named(sqlite_api: Api, query: str):
    problem = sqlite_api.problem(sqlite_api.call("GET", f"/v1/jobs?{query}"), 422)

    assert problem["details"][0]["field"].split(".")[0] == query.partition("&")[0].partition("=")[0].split(".")[0]


def test_patterns_of_the_database_are_plain_text(api: Api):
    api.submit(name="plain", labels={"a": "100%"})

    found = {
        query: api.get(f"/v1/jobs?{query}")["total_count"]
        for query in (
            "name=%25",
            "name=_lain",
            "labels.a=100%25",
            "labels.a=%25",
            "labels.a=1__%25",
            "name=pl",
            "name=PL",
        )
    }

    assert found == {
        "name=%25": 0,
        "name=_lain": 0,
        "labels.a=100%25": 1,
        "labels.a=%25": 0,
        "labels.a=1__%25": 0,
        "name=pl": 1,
        "name=PL": 0,
    }


@pytest.mark.long
def test_many_filters_are_answered_in_time(api: Api):
    query = "&".join(f"labels.k{n}=v" for n in range(100))

    began = time.process_time()
    got = api.call("GET", f"/v1/jobs?{query}")

    assert got.status_code in (200, 422)
    assert time.process_time() - began < 2.0


# ---- bodies


@pytest.mark.parametrize(
    "name",
    [
        "project_id",
        "project",
        "owner",
        "created_by",
        "state",
        "status",
        "epoch",
        "fence",
        "version",
        "quota",
        "created_at",
        "id",
        "job_id",
        "is_admin",
        "role",
        "sealed_secrets",
        "__proto__",
        "constructor",
        "_schema",
        "dry_run",
        "queue",
        "priority",
    ],
)
def test_what_is_not_the_callers_to_say_is_refused(sqlite_api: Api, name: str):
    problem = sqlite_api.problem(sqlite_api.post("/v1/jobs", {**make_document(), name: "x"}), 422)

    assert [detail["field"] for detail in problem["details"]] == [name]


def test_unknown_fields_are_refused_at_every_depth(sqlite_api: Api):
    depths: list[tuple[str, dict[str, Any]]] = [
        ("training_config.x", {"training_config": {"x": 1}}),
        ("training_config.base_model.x", {"training_config": {"base_model": {"x": 1}}}),
        ("training_config.framework.x", {"training_config": {"framework": {"x": 1}}}),
        ("training_config.framework.distributed.x", {"training_config": {"framework": {"distributed": {"x": 1}}}}),
        ("training_config.evaluation.x", {"training_config": {"evaluation": {"strategy": "no", "x": 1}}}),
        ("data_config.x", {"data_config": {"x": 1}}),
        ("data_config.preprocess.x", {"data_config": {"preprocess": {"x": 1}}}),
        ("data_config.sources.0.x", {"data_config": {"sources": [{"path": "/srv/x", "x": 1}]}}),
        ("data_config.sources.0.sampling.x", {"data_config": {"sources": [{"path": "/srv/x", "sampling": {"x": 1}}]}}),
        ("resource_config.x", {"resource_config": {"x": 1}}),
        ("output_config.x", {"output_config": {"x": 1}}),
        ("output_config.checkpoint.x", {"output_config": {"checkpoint": {"x": 1}}}),
        ("scheduling_config.x", {"scheduling_config": {"x": 1}}),
    ]

    got = {field: sqlite_api.post("/v1/jobs", make_document(**changes)) for field, changes in depths}

    assert {field: one.status_code for field, one in got.items()} == dict.fromkeys(got, 422)
    assert {field: sqlite_api.problem(one, 422)["details"][0]["field"] for field, one in got.items()} == {
        f: f for f in got
    }


TEMPLATES = [
    "${oc.env:DATABASE_URL}",
    "{{7*7}}",
    "{{config}}",
    "$(id)",
    "%(x)s",
    "`id`",
    "${jndi:ldap://x}",
    "<%= 7*7 %>",
    "!!python/object",
    "_target_: os.system",
    "=cmd()",
    "\u202etxt.exe",
    "<script>alert(1)</script>",
    "a\r\nb",
    "\x1b[2J",
]


def test_templates_are_text_and_stay_as_they_are(api: Api):
    for text in TEMPLATES:
        job_id = api.submit(labels={"k": text}, training_config={"environment": {"PLAIN": text}})

        shown = api.get(f"/v1/jobs/{job_id}")

        assert shown["labels"] == {"k": text}
        assert shown["training_config"]["environment"] == {"PLAIN": text}


def test_thousands_of_parts_cost_nothing(sqlite_api: Api):
    part = b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n'
    headers = {"Content-Type": "multipart/form-data; boundary=x"}

    began = time.process_time()
    got = sqlite_api.call("POST", "/v1/jobs", data=part * 10_000 + b"--x--", headers=headers)

    assert got.status_code == 415
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize(
    "changes",
    [
        {"name": " " * 127 + "!"},
        {"name": "a" * 128 + "!"},
        {"labels": {"a" * 64 + "!": "x"}},
        {"training_config": {"environment": {"A" * 129: "x"}}},
        {"training_config": {"hyperparameters": {"learning_rate": "1" * 4000}}},
        {"training_config": {"hyperparameters": {"learning_rate": "1e" + "9" * 4000}}},
        {"data_config": {"sources": [{"path": "s3://" + "a-" * 2000}]}},
        {"data_config": {"sources": [{"path": "/srv/" + "*" * 2000 + "x"}]}},
        {"data_config": {"sources": [{"path": "/srv/x", "split": "train[" + "9" * 50 + "%:]"}]}},
        {"scheduling_config": {"required_capabilities": ["a" * 5000]}},
    ],
)
def test_no_text_keeps_a_rule_busy(sqlite_api: Api, changes: dict[str, Any]):
    began = time.process_time()
    got = sqlite_api.post("/v1/jobs", make_document(**changes))

    assert got.status_code in (201, 400, 422)
    assert time.process_time() - began < 0.5
