"""What ModelArts tells of a running job: events, stages, minutes and lines."""

from datetime import UTC, datetime, timedelta
from typing import Any

from app.compat.modelarts import observations
from app.models import JobEvent
from app.storage.logs import LogLine

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def event(seconds: int, kind: str, to_status: str | None = None, **columns: Any) -> JobEvent:
    at = NOW + timedelta(seconds=seconds)
    values = {"id": f"evt-{seconds}", "job_id": "job-1", "reason": "", "message": "", "data": {}, **columns}
    return JobEvent(at=at, type=kind, to_status=to_status, **values)


def test_stages_begin_anew_with_each_scheduling():
    events = [
        event(0, "job.submitted", "PENDING"),
        event(1, "job.status", "QUEUED"),
        event(2, "job.status", "SCHEDULING"),
        event(3, "job.warning"),
        event(4, "job.status", "TRAINING"),
        event(5, "job.status", "QUEUED"),
        event(6, "job.status", "SCHEDULING"),
    ]

    first, second = observations.stages_of("job-1", events)

    assert [stage["name"] for stage in first["stages"]] == ["pending", "queued", "scheduling", "training", "queued"]
    assert first["stages"][3]["end_time"] == "2026-01-01T12:00:05.000+00:00"
    assert (second["record_order"], second["stages"][0]["end_time"]) == (2, "")


def test_events_have_a_level_and_a_source():
    found = [
        observations.event_of(each, {"worker-0": range(2), "worker-1": range(2, 4)})
        for each in (
            event(0, "job.status", "TRAINING"),
            event(1, "job.status", "FAILED", message="it broke"),
            event(2, "rank.exited", data={"rank": 3}, message="rank 3 exited"),
            event(3, "job.warning", message="hm"),
        )
    ]

    assert [(each["level"], each["source"], each["message"]) for each in found] == [
        ("Info", "Job", "Training job is running."),
        ("Error", "Job", "Training job is failed. it broke"),
        ("Info", "Task", "[worker-1] rank 3 exited"),
        ("Warning", "Job", "hm"),
    ]
    assert found[0]["time"] == "2026-01-01T12:00:00+00:00"


def test_events_of_a_heterogeneous_job_name_its_tasks() -> None:
    tasks = {"trainer-0": range(2), "rollout-0": range(2, 3), "rollout-1": range(3, 4)}
    told = [
        event(0, "attempt.started", message="attempt 1 trains on n1, n2"),
        event(1, "rank.exited", data={"rank": 3}, message="rollout 1 ended"),
        event(2, "task.restarted", data={"rank": 2}, message="rollout 0 starts again"),
    ]

    assert [observations.message_of(each, tasks).partition(" ")[0] for each in told] == [
        "[trainer-0]",
        "[rollout-1]",
        "[rollout-0]",
    ]
    assert {observations.source_of(each) for each in told} == {"Task"}


def test_minutes_without_a_sample_are_minus_one():
    points = [
        (NOW + timedelta(seconds=10), 1.0),
        (NOW + timedelta(seconds=50), 2.0),
        (NOW + timedelta(seconds=130), 5.0),
    ]

    assert observations.minute_means(points, NOW, NOW + timedelta(seconds=190)) == [1.5, -1.0, 5.0, -1.0]


def test_only_what_fits_of_a_log_is_shown():
    lines = [LogLine(attempt=1, n=n, at="", rank=0, line="x" * 9) for n in range(1, 5)]

    assert observations.newest(lines, 25) == ("x" * 9 + "\n") * 2
    assert observations.page_of(lines[1:3])["start_line"] == "1:2"
    assert observations.page_of([])["lines"] == 0
