"""Batches in OpenAI's words, and the check of the requests in their files."""

import sys
from datetime import UTC, datetime, timedelta
from subprocess import run
from typing import Any

import pytest
from openai.types import Batch as ClientsBatch

from app.compat.openai.batches.checking import check
from app.compat.openai.batches.from_native import batch_of
from app.domain.files import shapes
from app.domain.openai_paths import OPENAI_ENDPOINTS
from app.models import Batch, BatchJob

CHAT, COMPLETIONS, EMBEDDINGS = OPENAI_ENDPOINTS
BEGAN = datetime(2026, 5, 17, 9, 30, tzinfo=UTC)
SAID = [{"role": "user", "content": "hello"}]


def batch(**changes: Any) -> Batch:
    values: dict[str, Any] = {
        "id": "batch-1",
        "endpoint": CHAT,
        "input_file_id": "file-1",
        "window_seconds": 24 * 3600,
        "tags": {},
        "status": "validating",
        "pending_reason": "",
        "models": {},
        "problems": [],
        "total": 0,
        "completed": 0,
        "failed": 0,
        "prompt_tokens": 0,
        "completion_tokens": 0,
        "created_at": BEGAN,
        "expires_at": BEGAN + timedelta(hours=24),
    }
    return Batch(**(values | changes))


def test_completed_batch_has_its_files_counts_and_usage() -> None:
    found = batch_of(
        batch(
            status="completed",
            tags={"team": "red"},
            models={"tiny": 3},
            total=3,
            completed=2,
            failed=1,
            prompt_tokens=10,
            completion_tokens=5,
            output_file_id="file-2",
            error_file_id="file-3",
            in_progress_at=BEGAN + timedelta(seconds=1),
            finalizing_at=BEGAN + timedelta(seconds=2),
            ended_at=BEGAN + timedelta(seconds=3),
        ),
        [BatchJob(batch_id="batch-1", model="tiny", job_id="job-1", requests=3)],
    )

    read = ClientsBatch.model_validate(found, strict=True)
    began = int(BEGAN.timestamp())
    assert (read.status, read.completion_window, read.model, read.metadata) == (
        "completed",
        "24h",
        "tiny",
        {"team": "red"},
    )
    assert (read.created_at, read.in_progress_at, read.finalizing_at, read.completed_at) == tuple(
        began + seconds for seconds in range(4)
    )
    assert (read.expires_at, read.failed_at, read.expired_at, read.cancelled_at) == (began + 86400, None, None, None)
    assert (read.output_file_id, read.error_file_id, read.errors) == ("file-2", "file-3", None)
    assert read.request_counts is not None
    assert (read.request_counts.total, read.request_counts.completed, read.request_counts.failed) == (3, 2, 1)
    assert read.usage is not None
    assert (read.usage.input_tokens, read.usage.output_tokens, read.usage.total_tokens) == (10, 5, 15)
    assert found["trainyard"] == {"pending_reason": None, "jobs": {"tiny": "job-1"}}


@pytest.mark.parametrize(
    ("status", "field"),
    [
        ("completed", "completed_at"),
        ("failed", "failed_at"),
        ("expired", "expired_at"),
        ("cancelled", "cancelled_at"),
        ("cancelling", None),
    ],
)
def test_moment_of_the_end_has_the_name_of_its_state(status: str, field: str | None) -> None:
    found = batch_of(batch(status=status, ended_at=BEGAN if field else None, cancelling_at=BEGAN))

    ends = {name for name in ("completed_at", "failed_at", "expired_at", "cancelled_at") if found[name] is not None}
    assert ends == ({field} if field else set())
    assert ClientsBatch.model_validate(found, strict=True).cancelling_at == int(BEGAN.timestamp())


def test_problems_of_a_failed_batch_have_their_lines() -> None:
    problems = [{"code": "model_not_found", "message": "no model x", "param": "body.model", "line": 2}, {"code": "x"}]

    read = ClientsBatch.model_validate(batch_of(batch(status="failed", problems=problems, models={"a": 1, "b": 1})))

    assert read.errors is not None
    assert read.errors.data is not None
    assert [(each.code, each.param, each.line) for each in read.errors.data] == [
        ("model_not_found", "body.model", 2),
        ("x", None, None),
    ]
    assert read.model is None  # there are several


def test_problems_and_models_are_shown_once_all_requests_are_checked() -> None:
    found = batch_of(batch(status="validating", problems=[{"code": "x"}], models={"tiny": 1}))

    assert (found["errors"], found["model"]) == (None, None)


@pytest.mark.parametrize(
    ("endpoint", "body"),
    [
        (CHAT, {"messages": SAID, "max_tokens": 4, "temperature": 0, "seed": 1, "user": "me", "stream": False}),
        (COMPLETIONS, {"prompt": ["a", "b"], "n": 2}),
        (EMBEDDINGS, {"input": [[1, 2]], "encoding_format": "base64", "dimensions": None}),
    ],
)
def test_request_that_could_be_sent_alone_has_no_problem(endpoint: str, body: dict[str, Any]) -> None:
    assert check(endpoint, {"model": "tiny", **body}) == []


@pytest.mark.parametrize(
    ("endpoint", "body", "params"),
    [
        (CHAT, {}, ["body.messages"]),
        (CHAT, {"messages": []}, ["body.messages"]),
        (CHAT, {"messages": SAID, "temperature": 3, "n": 0}, ["body.n", "body.temperature"]),
        (CHAT, {"messages": [{"role": "robot", "content": "x"}]}, ["body.messages.0.role"]),
        (CHAT, {"messages": SAID, "stream": True}, ["body.stream"]),
        (CHAT, {"messages": SAID, "unknown": 1}, ["body.unknown"]),
        (CHAT, {"messages": [{"role": "user", "content": "\ud800"}]}, ["body.messages.0.content"]),
        (CHAT, {"messages": SAID, "metadata": {"a": {"b": 1}}}, ["body.metadata.a"]),
        (COMPLETIONS, {"messages": SAID}, ["body.messages", "body.prompt"]),
        (EMBEDDINGS, {"input": ""}, ["body.input"]),
        (EMBEDDINGS, {"input": "a", "service_tier": "flex"}, ["body.service_tier"]),
    ],
)
def test_problem_names_the_field_of_the_line(endpoint: str, body: dict[str, Any], params: list[str]) -> None:
    found = check(endpoint, {"model": "tiny", **body})

    assert sorted(each.param for each in found) == params
    assert {each.code for each in found} == {"validation_error"}
    assert all(each.message for each in found)


def test_body_that_is_nested_too_deeply_is_one_problem() -> None:
    deep: Any = 1
    for _ in range(40):
        deep = [deep]

    found = check(CHAT, {"model": "tiny", "messages": deep})

    assert [(each.param, each.message) for each in found] == [("body", "the JSON is nested deeper than 32 levels")]


def test_check_loads_no_web_framework() -> None:
    """Coordinators use it."""
    code = "import sys, app.compat.openai.batches.checking; sys.exit('flask' in sys.modules)"

    assert run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


@pytest.mark.parametrize("endpoint", OPENAI_ENDPOINTS)
def test_files_and_bodies_are_checked_for_every_endpoint(endpoint: str) -> None:
    line = {"custom_id": "a", "method": "POST", "url": endpoint, "body": {"model": "tiny"}}

    assert list(shapes.problems(line, shapes.BATCH)) == []
    assert check(endpoint, line["body"])  # type: ignore[arg-type]  # it lacks what is asked
