"""What watch and logs say of a job that has ended, against a small real HTTP server."""

from datetime import UTC, datetime, timedelta
from typing import Any

from click.testing import CliRunner, Result

from app.cli.main import main
from tests.doubles.scripted_server import ScriptedServer, success

WHOLE = "job-0197d2a4-7c1e-7d3a-9f53-1d2c5b0a9e11"
WITH_TIMES = {
    "created_at": "2026-11-29T09:00:00.000Z",
    "started_at": "2026-11-29T09:01:05.000Z",
    "finished_at": "2026-11-29T10:00:00.500Z",
}


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def job(status: str, **more: Any) -> dict[str, Any]:
    return {"job_id": WHOLE, "name": "n", "attempt": 1, "node_names": ["local"], "status": status, **more}


def test_watch_of_an_ended_job_shows_its_times(server: ScriptedServer) -> None:
    server.script(success(job("CANCELLED", elapsed_seconds=3000.0, **WITH_TIMES)))

    answer = run("watch", "job-00000000-0000-7000-8000-000000000001")

    times = "started 2026-11-29 09:01:05, 1:05 later, ended 2026-11-29 10:00:00, having run 50:00 (UTC)"
    assert answer.stdout.splitlines()[-2:] == [
        f"{WHOLE} CANCELLED after 1:00:00, 0 steps",
        f"Submitted 2026-11-29 09:00:00, {times}",
    ]


def test_watch_of_an_ended_job_begins_with_the_time_at_which_it_ended(server: ScriptedServer) -> None:
    long_ago = datetime(2026, 1, 2, 9, 30, 5, tzinfo=UTC)
    an_hour_ago = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
    server.script(*(success(job("CANCELLED", finished_at=at.isoformat())) for at in (long_ago, an_hour_ago)))

    first, second = (run("watch", WHOLE).stdout.splitlines()[0] for _ in range(2))

    assert first.startswith(f"{long_ago.astimezone():%Y-%m-%d %H:%M:%S}  CANCELLED  ")
    assert f"{an_hour_ago.astimezone():%H:%M:%S}  CANCELLED  " in second


def test_failure_before_the_start_counts_from_submission(server: ScriptedServer) -> None:
    server.script(success(job("FAILED", **{**WITH_TIMES, "started_at": None})))

    answer = run("watch", "job-00000000-0000-7000-8000-000000000001")

    assert f"{WHOLE} FAILED after 1:00:00" in answer.stdout
    assert "Submitted 2026-11-29 09:00:00, never started, ended 2026-11-29 10:00:00 (UTC)" in answer.stdout


def test_logs_of_a_job_that_failed_in_its_preflight_prints_the_findings(server: ScriptedServer) -> None:
    report = {
        "errors": [{"field": "", "error_type": "DATA_INVALID", "message": "line 3 has no text"}],
        "warnings": ["7 % of the records are cut"],
        "left_out": ["no memory"],
    }
    events = [{"type": "job.preflight", "message": "", "data": report}, {"type": "job.status", "data": {}}]
    server.script(
        success({"lines": []}),
        success(job("FAILED", attempt=0, error_type="DATA_INVALID", error_message="line 3 has no text")),
        success({"events": events, "next_page_token": ""}),
    )

    answer = run("logs", "job-00000000-0000-7000-8000-000000000001")

    assert (answer.exit_code, answer.stdout) == (0, "")
    assert answer.stderr.splitlines() == [
        "job-00000000-0000-7000-8000-000000000001 failed before its first attempt.",
        "DATA_INVALID: line 3 has no text",
        "Preflight: DATA_INVALID: line 3 has no text",
        "Preflight: 7 % of the records are cut",
        "Preflight: left to the node: no memory",
    ]
