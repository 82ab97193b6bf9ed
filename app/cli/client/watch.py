"""`trainyard watch`: follows a job to its end with state, progress, time left, step and loss."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import unquote, urlsplit

import click

from app.cli.client.documents.local_files import ways_to_send
from app.cli.client.job_facts import amount, kind_of
from app.cli.client.job_views import BarView, JobJsonView, JobLineView
from app.cli.connection import local_option, server
from app.cli.handles import job_argument, job_id_of
from app.cli.output import duration, json_option, moment, printable, seconds_between
from app.domain.spec.kinds import TRAINING
from trainyard.client import NO_RETRY, ApiError, Client, Job, RetryPolicy, Unreachable

POLL_SECONDS = 0.5
UNREACHABLE_TIMEOUT_SECONDS = 300.0
EXIT_NOT_COMPLETED = 3


Followed = TypeVar("Followed")
Shown_contra = TypeVar("Shown_contra", contravariant=True)


class View(Protocol[Shown_contra]):
    """Displays the state of what is followed each time it is polled."""

    def show(self, state: Shown_contra, /) -> None: ...

    def say(self, text: str) -> None: ...

    def close(self) -> None: ...


@click.command()
@job_argument
@local_option
@json_option
def watch(*, handle: str, as_json: bool) -> None:
    """Follow JOB to its end. Exit code 3 unless it ends COMPLETED; Ctrl-C leaves it running."""
    with server() as client:
        watch_to_end(client, job_id_of(client, handle), as_json=as_json)


def watch_to_end(client: Client, job_id: str, *, as_json: bool = False) -> None:
    """Follow the job to its end, print its outcome, and exit with the matching code."""
    job = follow_to_end(client, job_id, as_json=as_json)
    sys.exit(0 if job.status == "COMPLETED" else EXIT_NOT_COMPLETED)


def follow_to_end(client: Client, job_id: str, *, as_json: bool = False) -> Job:
    """Follow the job to its end, print its outcome and return it; Ctrl-C ends this process."""
    view: View[Job] = JobJsonView() if as_json else BarView() if sys.stdout.isatty() else JobLineView()
    try:
        job = follow(client, job_id, view)
    except KeyboardInterrupt:
        view.close()
        click.echo(
            f"\n{job_id} continues to run. Follow it: trainyard watch {job_id} · cancel it: trainyard cancel {job_id}",
            err=True,
        )
        sys.exit(1)
    view.close()
    if not as_json:
        click.echo(printable(ending(client, job)))
    return job


def follow(client: Client, job_id: str, view: View[Job], *, sleep: Callable[[float], None] = time.sleep) -> Job:
    """Poll the job until it ends and return it. Tolerates an unreachable server for a while."""

    def ask(patience: RetryPolicy | None) -> Job:
        return client.get(job_id, patience=patience)

    return poll_to_end(ask, view, lambda job: job.is_terminal, what="job", sleep=sleep)


def poll_to_end(
    ask: Callable[[RetryPolicy | None], Followed],
    view: View[Followed],
    has_ended: Callable[[Followed], bool],
    *,
    what: str,
    sleep: Callable[[float], None] = time.sleep,
) -> Followed:
    """Show each answer of ``ask`` until one ``has_ended``; the first has the client's own retry policy."""
    state = ask(None)
    away_since: float | None = None
    pause = POLL_SECONDS
    while True:
        view.show(state)
        if has_ended(state):
            return state
        sleep(pause)
        pause = POLL_SECONDS
        try:
            state = ask(NO_RETRY)
            away_since = None
        except (Unreachable, ApiError) as error:
            if isinstance(error, ApiError):
                if error.status < 500 and error.status != 429:
                    raise
                pause = max(POLL_SECONDS, error.retry_after or 0.0)
            if away_since is None:
                view.say(f"{error} – the {what} continues; waiting for the server")
                away_since = time.monotonic()
            if time.monotonic() - away_since > UNREACHABLE_TIMEOUT_SECONDS:
                raise


def ending(client: Client, job: Job) -> str:
    """The outcome of a finished job, and the next command to run."""
    lines = [f"{job.job_id} {job.status} after {duration(_lasted(job))}, {amount(job)}", *_times(job)]
    if job.status == "COMPLETED":
        report = client.report(job.job_id)
        what = "Model" if kind_of(job) == TRAINING else "Output"
        lines += [f"{what}: {_place(job, report['model_uri'])}"] if report.get("model_uri") else []
    elif job.error_message:
        lines.append(f"{job.error_type}: {job.error_message}")
        lines += [f"Hint: {way}" for way in ways_to_send(job.data, said=job.error_message)]
    if job.status == "FAILED":
        lines.append(f"Its log: trainyard logs {job.job_id}")
    return "\n".join(lines)


def _place(job: Job, uri: str) -> str:
    """The URI, or the command that fetches what lies on a disk that this machine does not have."""
    parts = urlsplit(uri)
    is_away = parts.scheme == "file" and not Path(unquote(parts.path)).exists()
    return f"trainyard download {job.job_id}" if is_away else uri


def _times(job: Job) -> list[str]:
    """When the job was submitted, started and ended, and how long it waited and ran."""
    submitted, started, ended = (job.data.get(name) for name in ("created_at", "started_at", "finished_at"))
    if not submitted:
        return []
    waited = duration(seconds_between(submitted, started))
    ran = f"started {moment(started)}, {waited} later" if started else "never started"
    lasted = f", having run {duration(job.elapsed_seconds)}" if started else ""
    return [f"Submitted {moment(submitted)}, {ran}, ended {moment(ended)}{lasted} (UTC)"]


def _lasted(job: Job) -> float:
    """Seconds from submission to end."""
    whole = seconds_between(job.data.get("created_at"), job.data.get("finished_at"))
    return job.elapsed_seconds if whole is None else whole
