"""Views of a followed job: a progress bar on a terminal, lines in a file, JSON for programs."""

import time
from datetime import datetime
from typing import Any

import click

from app.cli.client.job_facts import facts
from app.cli.output import STATUS_STYLES, console, print_json_line, printable
from trainyard.client import Job

LINE_SECONDS = 5.0


class BarView:
    """Prints state changes above a progress bar at the bottom of the terminal."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn  # noqa: PLC0415

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TextColumn("{task.fields[facts]}"),
            console=console(),
            expand=True,
        )
        self._task = self._progress.add_task("…", total=None, facts="")
        self._last_shown: tuple[object, ...] = ()
        self._progress.start()

    def show(self, job: Job) -> None:
        if (change := _change_of(job)) != self._last_shown:
            self._last_shown = change
            self.say(_headline(job))
        style = STATUS_STYLES.get(job.status, "white")
        self._progress.update(
            self._task,
            description=f"[{style}]{job.status}[/]",
            total=1.0 if job.progress or job.is_terminal else None,
            completed=job.progress,
            facts=facts(job),
        )

    def say(self, text: str) -> None:
        self._progress.console.print(printable(text), markup=False)

    def close(self) -> None:
        self._progress.stop()


class JobLineView:
    """Prints one line per state change, and one every few seconds of progress."""

    def __init__(self) -> None:
        self._last_shown: tuple[object, ...] = ()
        self._step = -1
        self._next_line = 0.0

    def show(self, job: Job) -> None:
        if (change := _change_of(job)) != self._last_shown:
            self._last_shown = change
            self.say(_headline(job))
        elif job.current_step != self._step and time.monotonic() >= self._next_line:
            self.say(f"  {job.progress:4.0%}  {facts(job)}")
        else:
            return
        self._step, self._next_line = job.current_step, time.monotonic() + LINE_SECONDS

    def say(self, text: str) -> None:
        click.echo(printable(text))

    def close(self) -> None:
        pass


class JobJsonView:
    """Prints the whole job as one JSON line whenever it changed."""

    def __init__(self) -> None:
        self._version: Any = None

    def show(self, job: Job) -> None:
        version = (job.data.get("version"), job.current_step, job.status)
        if version != self._version:
            self._version = version
            print_json_line(job.data)

    def say(self, text: str) -> None:
        pass

    def close(self) -> None:
        pass


def _change_of(job: Job) -> tuple[object, ...]:
    return job.status, job.attempt, job.requested, job.pending_reason


def _time_of_change(job: Job) -> str:
    """When the job has ended, with the day unless it is today; until then the time of now, at which it was seen."""
    ended_at = job.data.get("finished_at") if job.is_terminal else None
    now = datetime.now().astimezone()
    shown = datetime.fromisoformat(ended_at).astimezone() if ended_at else now
    return shown.strftime("%H:%M:%S" if shown.date() == now.date() else "%Y-%m-%d %H:%M:%S")


def _headline(job: Job) -> str:
    parts = [_time_of_change(job), job.status]
    if job.attempt:
        parts.append(f"attempt {job.attempt} on {', '.join(job.data.get('node_names') or ['?'])}")
    if job.requested:
        parts.append(f"({job.requested} requested)")
    line = "  ".join(parts)
    reason = job.pending_reason or job.data.get("status_reason") or ""
    return line if reason.lower() in line.lower() else f"{line}  {reason}"
