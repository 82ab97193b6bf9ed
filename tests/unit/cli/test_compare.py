"""`trainyard compare` against a small real HTTP server: what is asked, and what people and programs see."""

import json
from typing import Any

import pytest

from tests.doubles.scripted_server import ScriptedServer, failure, success
from tests.systems.commands import run

JOBS: list[dict[str, Any]] = [
    {
        "job_id": "job-00000000-0000-7000-8000-000000000001",
        "name": "first",
        "status": "COMPLETED",
        "training_type": "SFT",
        "devices": {"type": "cpu", "count": 2, "share": 1.0, "node_names": ["local"]},
        "elapsed_seconds": 62.0,
        "steps": 10,
        "model_hash": "0123456789abcdef",
    },
    {
        "job_id": "job-00000000-0000-7000-8000-000000000002",
        "name": "second",
        "status": "QUEUED",
        "training_type": "SFT",
        "devices": None,
        "elapsed_seconds": 0.0,
        "steps": 0,
        "model_hash": None,
    },
]
COMPARED: dict[str, Any] = {
    "jobs": JOBS,
    "differences": [{"field": "data_config.batch_size", "values": [4, None]}],
    "metrics": {
        "loss": {"final": [1.5, 1.25], "final_difference": [0.0, -0.25]},
        "kl": {"final": ["NaN", None], "final_difference": [None, None]},
    },
    "left_out": ["memory_mb"],
    "curves": {"loss": [[{"x": 1, "value": 1.5}], []]},
}


def test_people_see_jobs_differences_and_final_metrics(server: ScriptedServer) -> None:
    server.script(success(COMPARED))

    answer = run("compare", "job-00000000-0000-7000-8000-000000000001", "job-00000000-0000-7000-8000-000000000002")

    assert (answer.exit_code, answer.stderr) == (0, "")
    assert answer.stdout.splitlines() == [
        "   id        name    status     type  devices  duration  steps  weights",
        "1  00000001  first   COMPLETED  SFT   2 × cpu  1:02      10     0123456789ab",
        "2  00000002  second  QUEUED     SFT            0:00      0",
        "",
        "field                   1  2",
        "data_config.batch_size  4",
        "",
        "metric  1    2",
        "loss    1.5  1.25 (-0.25)",
        "kl      NaN",
        "Left out, select with --metric: memory_mb",
    ]
    method, path, _, body = server.seen[0]
    assert (method, path) == ("POST", "/v1/compare")
    assert json.loads(body) == {
        "jobs": ["job-00000000-0000-7000-8000-000000000001", "job-00000000-0000-7000-8000-000000000002"],
        "metrics": [],
        "by": "step",
    }


def test_programs_see_the_whole_answer(server: ScriptedServer) -> None:
    server.script(success(COMPARED))

    answer = run(
        "compare",
        "job-00000000-0000-7000-8000-000000000001",
        "job-00000000-0000-7000-8000-000000000002",
        "--metric",
        "loss",
        "--metric",
        "kl",
        "--by",
        "seconds",
        "--json",
    )

    assert json.loads(answer.stdout) == COMPARED
    assert json.loads(server.seen[0][3]) == {
        "jobs": ["job-00000000-0000-7000-8000-000000000001", "job-00000000-0000-7000-8000-000000000002"],
        "metrics": ["loss", "kl"],
        "by": "seconds",
    }


def test_what_is_the_same_and_what_is_missing_is_said(server: ScriptedServer) -> None:
    server.script(success({**COMPARED, "differences": [], "metrics": {}, "left_out": []}))

    answer = run("compare", "job-00000000-0000-7000-8000-000000000001", "job-00000000-0000-7000-8000-000000000002")

    assert answer.stdout.splitlines()[4:] == ["The documents are the same.", "", "No metrics yet."]


def test_a_refusal_is_one_line(server: ScriptedServer) -> None:
    server.script(failure(404, {"code": "NOT_FOUND", "message": "no job job-00000000-0000-7000-8000-000000000002"}))

    answer = run("compare", "job-00000000-0000-7000-8000-000000000001", "job-00000000-0000-7000-8000-000000000002")

    assert (answer.exit_code, answer.stdout) == (1, "")
    assert "no job job-00000000-0000-7000-8000-000000000002" in answer.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("job-00000000-0000-7000-8000-000000000001", "x" * 129),
        ("job-00000000-0000-7000-8000-000000000001", "job-00000000-0000-7000-8000-000000000002", "--by", "epochs"),
        ("job-00000000-0000-7000-8000-000000000001", "job-00000000-0000-7000-8000-000000000002", "--metric", "\udce4"),
    ],
)
def test_bad_arguments_are_a_usage_error(server: ScriptedServer, arguments: tuple[str, ...]) -> None:
    assert run("compare", *arguments).exit_code == 2
    assert server.seen == []
