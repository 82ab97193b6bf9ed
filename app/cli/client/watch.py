"""`trainyard watch`: follows a job to its end with state, progress, time left, step and loss."""

import sys
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

import click

from app.cli.client.connection import server
from app.cli.client.job_facts import amount, kind_of
from app.cli.client.job_views import BarView, JsonView, LineView
from app.cli.output import duration, json_option, printable
from app.domain.spec.inference import TRAINING
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
@click.argument("job_id")
@json_option
def watch(job_id: str, as_json: bool) -> None:  # noqa: FBT001
    """Follow JOB_ID to its end. Exit code 3 unless it ends COMPLETED; Ctrl-C leaves it running."""
    with server() as client:
        watch_to_end(client, job_id, as_json=as_json)


def watch_to_end(client: Client, job_id: str, *, as_json: bool = False) -> None:
    """Follow the job to its end, print its outcome, and exit with the matching code."""
    job = follow_to_end(client, job_id, as_json=as_json)
    sys.exit(0 if job.status == "COMPLETED" else EXIT_NOT_COMPLETED)


def follow_to_end(client: Client, job_id: str, *, as_json: bool = False) -> Job:
    """Follow the job to its end, print its outcome and return it; Ctrl-C ends this process."""
    view: View[Job] = JsonView() if as_json else BarView() if sys.stdout.isatty() else LineView()
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
    lines = [f"{job.job_id} {job.status} after {duration(job.elapsed_seconds)}, {amount(job)}"]
    if job.status == "COMPLETED":
        report = client.report(job.job_id)
        what = "Model" if kind_of(job) == TRAINING else "Output"
        lines += [f"{what}: {report['model_uri']}"] if report.get("model_uri") else []
    elif job.error_message:
        lines.append(f"{job.error_type}: {job.error_message}")
    if job.status == "FAILED":
        lines.append(f"Its log: trainyard logs {job.job_id}")
    return "\n".join(lines)
