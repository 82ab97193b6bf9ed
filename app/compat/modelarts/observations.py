"""Events, stages, metrics per minute and log pages of ModelArts. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from app.compat.ids import uuid_of
from app.compat.modelarts.status import STATES
from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.states import JobState
from app.domain.sweeps.events import SweepEventType
from app.services.rows import JobEvent, SweepEvent
from app.storage.logs import START, Cursor, LogLine

# Metric → native series; empty: there is none.
SERIES: Mapping[str, str] = {
    "cpuUsage": "cpu_percent",
    "memUsage": "memory_mb",
    "gpuUtil": "gpu_utilization",
    "gpuMemUsage": "gpu_memory_mb",
    "npuUtil": "",
    "npuMemUsage": "",
}
NO_SAMPLE = -1.0
_OF_TASKS = (EventType.ATTEMPT_STARTED, EventType.ATTEMPT_ENDED, EventType.RANK_EXITED, EventType.TASK_RESTARTED)
_MOST_MINUTES = 10_000


def event_of(event: JobEvent | SweepEvent, tasks: Mapping[str, range]) -> dict[str, str]:
    """``tasks``: of its job, with their ranks; none of a search."""
    return {
        "time": event.at.isoformat(timespec="seconds"),
        "level": level_of(event),
        "source": source_of(event),
        "message": message_of(event, tasks),
    }


def level_of(event: JobEvent | SweepEvent) -> str:
    if event.to_status == JobState.FAILED:
        return "Error"
    return "Warning" if event.type in (EventType.WARNING, SweepEventType.WARNING) else "Info"


def source_of(event: JobEvent | SweepEvent) -> str:
    return "Task" if event.type in _OF_TASKS else "Job"


def message_of(event: JobEvent | SweepEvent, tasks: Mapping[str, range]) -> str:
    if isinstance(event, SweepEvent):
        return event.message or event.reason or event.to_status or event.type
    if event.to_status is not None:
        change = f"Training job is {STATES[JobState(event.to_status)][1].lower()}."
        return f"{change} {event.message}".rstrip()
    task = f"[{_task_of(event, tasks)}] " if event.type in _OF_TASKS else ""
    return f"{task}{event.message or event.reason or event.type}"


def _task_of(event: JobEvent, tasks: Mapping[str, range]) -> str:
    """The task that has the event's rank, else the last one; what is about all ranks is said of the first one's."""
    rank = event.data.get("rank", 0)
    return next((task for task, ranks in tasks.items() if rank in ranks), [*tasks][-1])


def stages_of(job_id: str, events: Sequence[JobEvent]) -> list[dict[str, Any]]:
    """Stages of each running record; a record begins whenever the job is scheduled again."""
    records: list[list[dict[str, Any]]] = [[]]
    phases = [event for event in events if event.to_status is not None]
    for number, event in enumerate(phases):
        if event.to_status == JobState.SCHEDULING and any(each["name"] == "scheduling" for each in records[-1]):
            records.append([])
        following = phases[number + 1].at if number + 1 < len(phases) else None
        name = str(event.to_status).lower()
        records[-1].append(
            {
                "job_id": uuid_of(job_id),
                "name": name,
                "en_message": event.message or name,
                "zh_message": event.message or name,
                "start_time": event.at.isoformat(timespec="milliseconds"),
                "end_time": following.isoformat(timespec="milliseconds") if following is not None else "",
                "stage_order": len(records[-1]) + 1,
                "sub_stages": [],
            }
        )
    return [{"record_order": number, "stages": stages} for number, stages in enumerate(records, start=1) if stages]


def minute_means(points: Sequence[tuple[datetime, float]], start: datetime, end: datetime) -> list[float]:
    """The mean of each minute since ``start``; -1 without samples."""
    minutes = min(_MOST_MINUTES, int((end - start) / timedelta(minutes=1)) + 1)
    sums: dict[int, list[float]] = {}
    for at, value in points:
        sums.setdefault(int((at - start) / timedelta(minutes=1)), []).append(value)
    return [round(sum(sums[each]) / len(sums[each]), 3) if each in sums else NO_SAMPLE for each in range(minutes)]


def cursor_of(text: str) -> tuple[int, int]:
    """(attempt, line) of a start_line or end_line. Raises ValueError."""
    attempt, _, number = text.partition(":")
    return int(attempt), int(number)


def page_of(lines: Sequence[LogLine]) -> dict[str, Any]:
    """A page of the log, with its lines in the given order."""
    ordered: list[Cursor] = sorted(line.cursor for line in lines) or [START]
    return {
        "start_line": ":".join(map(str, ordered[0])),
        "end_line": ":".join(map(str, ordered[-1])),
        "lines": len(lines),
        "content": "".join(f"{line.line}\n" for line in lines),
    }


def newest(lines: Sequence[LogLine], most_bytes: int) -> str:
    """The last lines that fit into ``most_bytes``."""
    return "".join(reversed(list(_fitting(lines, most_bytes))))


def _fitting(lines: Sequence[LogLine], most_bytes: int) -> Iterator[str]:
    size = 0
    for line in reversed(lines):
        text = f"{line.line}\n"
        size += len(text.encode())
        if size > most_bytes:
            return
        yield text
