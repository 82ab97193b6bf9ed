"""What `POST /v1/inference` refuses, in the words of the request; nothing is stored then."""

from typing import Any

import pytest

from app.domain.names import MOST_LABELS
from app.security.permissions import Role
from tests.builders.inference_requests import make_batch, make_features
from tests.systems.apps import Api


def refused(api: Api, body: dict[str, Any], status: int) -> tuple[str, str]:
    """(field, message) of the answer's first detail."""
    problem = api.problem(api.post("/v1/inference", body), status)
    assert api.get("/v1/jobs")["total_count"] == 0
    detail = problem["details"][0]
    return str(detail["field"]), str(detail["message"])


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": " "}, "name"),
        ({"kind": "training"}, "kind"),
        ({"model": {"job_id": ""}}, "model.job_id"),
        ({"model": {"job_id": "job-1", "checkpoint": ""}}, "model.checkpoint"),
        ({"model": {"model_uri": ""}}, "model.model_uri"),
        ({"model": {"model_uri": "a/b", "revision": ""}}, "model.revision"),
        ({"model": {"model_uri": "a/b", "tokenizer_id": ""}}, "model.tokenizer_id"),
        ({"model": {"model_uri": "a/b", "dtype": ""}}, "model.dtype"),
        ({"model": {"model_uri": "a", "unknown": 1}}, "model.unknown"),
        ({"model": {"model_uri": "a", "quantization": "int8"}}, "model.quantization"),
        ({"task": {"type": "translate"}}, "task.type"),
        ({"task": {"temperature": 2.5}}, "task.temperature"),
        ({"task": {"temperature": "0.7"}}, "task.temperature"),
        ({"task": {"n": 0}}, "task.n"),
        ({"task": {"seed": -1}}, "task.seed"),
        ({"task": {"stop": "."}}, "task.stop"),
        ({"task": {"type": "requests", "endpoint": "/v1/responses"}}, "task.endpoint"),
        ({"task": {"type": "requests", "created": -1}}, "task.created"),
        ({"output": {"format": "csv"}}, "output.format"),
        ({"output": {"shard_records": 0}}, "output.shard_records"),
        ({"on_error": {"max_share": 1.5}}, "on_error.max_share"),
        ({"on_error": {"action": "ignore"}}, "on_error.action"),
        ({"data_config": {"sources": [{"path": "/srv/a", "weight": 1.0}]}}, "data_config.sources.0.weight"),
        ({"data_config": {"sources": [{"path": "/srv/a"}], "batch_size": 8}}, "data_config.batch_size"),
        ({"training_config": {}}, "training_config"),
        ({"labels": {f"key{n}": "x" for n in range(MOST_LABELS)}}, "labels"),  # with its type they are one too many
    ],
)
def test_what_the_schema_does_not_know_is_422(sqlite_api: Api, changes: dict[str, Any], field: str) -> None:
    assert refused(sqlite_api, make_batch(**changes), 422)[0] == field


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ({"model": {}}, "model", "job_id"),
        ({"model": {"checkpoint": "best"}}, "model.job_id", "name that in job_id"),
        ({"model": {"model_uri": "none"}}, "model.model_uri", "model_uri"),
        ({"model": {"model_uri": " "}}, "model.model_uri", "model_uri must not be empty"),
        ({"model": {"model_uri": "/etc"}}, "model.model_uri", "outside"),
        ({"model": {"model_uri": "a/b", "dtype": "float8"}}, "model.dtype", "known"),
        ({"model": {"model_uri": "/srv/m", "revision": "main"}}, "model.revision", "hub"),
        ({"model": {"model_uri": "/srv/m", "quantization": "bnb-4bit"}}, "model.quantization", "GPUs"),
        ({"model": {"model_uri": "/srv/m", "model_kwargs": {"x": 1}}}, "model.model_kwargs.x", "unknown option"),
        ({"task": {"n": 4}}, "task.n", "temperature"),
        ({"task": {"stop": [""]}}, "task.stop.0", "1 to 256"),
        ({"task": {"response_format": {"type": "json_schema"}}}, "task.response_format.schema", "needs schema"),
        (
            {"task": {"response_format": {"type": "regex", "pattern": "(?=a)b"}}},
            "task.response_format.pattern",
            "RE2's syntax",
        ),
        (
            {"task": {"response_format": {"type": "regex", "pattern": "["}}},
            "task.response_format.pattern",
            "[: missing",
        ),
        ({"task": {"type": "embed"}}, "task.type", "kind features"),
        ({"on_error": {"action": "fail", "max_share": 0.1}}, "on_error.max_share", "leave it out"),
        ({"output": {"path": "/etc/out"}}, "output.path", "storage roots"),
        ({"output": {"log_path": "/etc/logs"}}, "output.log_path", "storage roots"),
        ({"output": {"credentials": {"token": "x"}}}, "output.credentials", "output.path"),
        ({"environment": {"LD_PRELOAD": "x"}}, "environment.LD_PRELOAD", "reserved"),
        ({"resource_config": {"node_count": 2}}, "resource_config.node_count", "one node"),
        ({"scheduling_config": {"queue": "fast"}}, "scheduling_config.queue", "fast"),
        ({"data_config": {"sources": []}}, "data_config.sources", "at least one"),
        ({"tracking": [{"kind": "aim"}]}, "tracking.0.kind", "aim"),
    ],
)
def test_what_has_no_meaning_is_400(sqlite_api: Api, changes: dict[str, Any], field: str, said: str) -> None:
    found = refused(sqlite_api, make_batch(**changes), 400)

    assert (found[0], said in found[1]) == (field, True), found


def test_parquet_has_no_bfloat16(sqlite_api: Api) -> None:
    assert refused(sqlite_api, make_features(task={"dtype": "bfloat16"}), 400)[0] == "task.dtype"


def test_results_of_another_project_are_no_records(sqlite_api: Api) -> None:
    place = f"{sqlite_api.folder}/data/files/jobs/job-of-another/artifacts/a.jsonl"

    field, message = refused(sqlite_api, make_batch(data_config={"sources": [{"path": place}]}), 400)

    assert (field, "no job with such results" in message) == ("data_config.sources.0.path", True)


def test_project_of_others_does_not_exist(api: Api) -> None:
    answer = api.post("/v1/inference?project=other", make_batch(), key=api.make_key(Role.USER))

    assert "no project other" in api.problem(answer, 404)["message"]
