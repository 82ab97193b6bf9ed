"""Handles of jobs on the command line: a whole id, the end of one, a name, or `@last`."""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, TypeVar

import click

from app.domain.suggestions import did_you_mean
from trainyard.client import Client, NotFound, is_job_id
from trainyard.records import Job

LONGEST = 128
LEAST_TO_STOP = 6  # of the end of an id, for what stops or deletes the job
LAST = "@last"
MOST_COMPARED = 100  # names of the newest jobs, with one that no job has
Command = TypeVar("Command", bound=Callable[..., Any])


class JobHandle(click.ParamType[str]):
    """What stands for a job; `job_id_of` asks the server which one, and only for what is no whole id."""

    name = "JOB"

    def convert(
        self,
        value: Any,  # noqa: ANN401 – click's signature
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str:
        handle = str(value)
        if not handle or len(handle) > LONGEST:
            self.fail(f"use 1 to {LONGEST} characters", param, ctx)
        if handle.encode(errors="ignore").decode() != handle:
            self.fail("contains bytes that are not UTF-8", param, ctx)
        return handle


def job_argument(command: Command) -> Command:
    """``JOB`` for a command, as the argument ``handle``."""
    return click.argument("handle", type=JobHandle(), metavar="JOB")(command)


def jobs_argument(command: Command) -> Command:
    """``JOB…`` for a command, as the argument ``handles``."""
    return click.argument("handles", nargs=-1, required=True, type=JobHandle(), metavar="JOB…")(command)


def job_id_of(client: Client, handle: str) -> str:
    """The whole id. Raises NotFound and AmbiguousHandle."""
    return handle if is_job_id(handle) else _found(client, handle).job_id


def _found(client: Client, handle: str) -> Job:
    """With the name that may be meant in the message, if there is none. Raises NotFound and AmbiguousHandle."""
    try:
        return client.find(handle)
    except NotFound as error:
        if handle == LAST:
            raise
        meant = did_you_mean(handle, {job.name for job in islice(client.list(), MOST_COMPARED)})
        message = f"no job {handle}{meant}; `trainyard jobs list` shows them"
        raise NotFound(error.status, {"code": error.code, "message": message}) from error


def id_to_stop(client: Client, handle: str) -> str:
    """As `job_id_of`, for commands that stop or delete a job: a few characters may have been meant as a name.

    Raises ClickException for these.
    """
    if is_job_id(handle):
        return handle
    job = _found(client, handle)
    if len(handle) < LEAST_TO_STOP and job.job_id.endswith(handle) and job.name != handle:
        raise click.ClickException(
            f"no job is named {handle!r}; {job.job_id} ({job.name}) only ends so: name it by {LEAST_TO_STOP} or more "
            "characters of its id"
        )
    return job.job_id


def job_ids_of(client: Client, handles: Iterable[str]) -> list[str]:
    return [job_id_of(client, handle) for handle in handles]
