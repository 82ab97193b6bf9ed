"""`trainyard exec` and `trainyard shell`: a command, or a login shell, in the sandbox of a running job."""

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import wraps
from typing import Any

import click

from app.cli.client.interactive.command_session import NO_EXIT_CODE, CallerStreams, CommandOutcome, run_command
from app.cli.client.interactive.session_socket import SessionError, SessionTicket, open_session
from app.cli.client.interactive.terminal import (
    Disconnected,
    StandardStreams,
    Terminal,
    hang_ups_end,
    is_terminal,
    name_of_terminal,
    raw,
    size,
)
from app.cli.connection import server
from app.cli.handles import job_argument, job_id_of
from app.cli.output import printable
from app.domain.interactive import EXEC, SHELL

INTERRUPTED = 130
RECORDED = "What this session shows is recorded."
_SEPARATOR = "Put -- before the command: trainyard exec JOB -- ls -l"
_rank_option = click.option(
    "--rank",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="The rank beside which it runs; with --role, of its instance.",
)
_role_option = click.option("--role", metavar="ROLE", help="The role whose rank it is, of a job that has roles.")
_index_option = click.option("--index", type=click.IntRange(0), help="The instance of the role; default 0.")


def place_options(command: Callable[..., None]) -> Callable[..., None]:
    """--role, --index and --rank, which the command gets as ``place``: fields of the API's request."""

    @wraps(command)
    def placed(*, role: str | None, index: int | None, rank: int, **others: Any) -> None:
        if index is not None and role is None:
            raise click.UsageError("--index is the number of an instance of a role: give --role, or omit it")
        of_role = {"role": role, "index": index or 0} if role is not None else {}
        command(place={"rank": rank, **of_role}, **others)

    return _role_option(_index_option(_rank_option(placed)))


class _CommandOfJob(click.Command):
    """Says where the options of the other command go."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except (click.NoSuchOption, click.MissingParameter) as error:
            raise click.UsageError(f"{error.format_message()} {_SEPARATOR}", ctx) from error


@click.command("exec", cls=_CommandOfJob)
@job_argument
@place_options
@click.option("-i", "--stdin", "reads", is_flag=True, help="Hand the input of this command on.")
@click.option("-t", "--tty", "has_terminal", is_flag=True, help="Give it a terminal; its input is this one's.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="COMMAND…")
def exec_(*, handle: str, place: Mapping[str, Any], reads: bool, has_terminal: bool, command: tuple[str, ...]) -> None:
    """Run COMMAND in the sandbox of the running JOB: `trainyard exec JOB -- ps aux`.

    The exit code is that of COMMAND, 128 and the signal's number where a signal ended it, and 255 where it could not be
    run or its session ended before it did.
    """
    if has_terminal and not is_terminal():
        raise click.UsageError("-t needs a terminal as input and output; omit it, or use -i to hand the input on")
    with _own_exit_code():
        opened = _open(handle, EXEC, place, command=list(command), has_terminal=has_terminal)
        _finish(_run(opened, Terminal() if has_terminal else StandardStreams(reads=reads)))


@click.command()
@job_argument
@place_options
def shell(*, handle: str, place: Mapping[str, Any]) -> None:
    """Open a shell in the sandbox of the running JOB. Enter, then ~. leaves it; so does its end.

    Exit code as for exec.
    """
    if not is_terminal():
        raise click.UsageError("a shell needs a terminal; for a script use `trainyard exec -i JOB -- sh`")
    with _own_exit_code():
        opened = _open(handle, SHELL, place, command=[], has_terminal=True)
        _finish(_run(opened, Terminal()))


class SessionFailed(click.ClickException):
    """An error of ours, which must not look like one of the command."""

    exit_code = NO_EXIT_CODE


@contextmanager
def _own_exit_code() -> Iterator[None]:
    try:
        yield
    except click.UsageError:
        raise
    except click.ClickException as error:
        raise SessionFailed(error.message) from error
    except SessionError as error:
        raise SessionFailed(printable(str(error))) from error


def _open(handle: str, kind: str, place: Mapping[str, Any], *, command: list[str], has_terminal: bool) -> SessionTicket:
    with server() as client:
        job_id = job_id_of(client, handle)
        request = {"command": command, "tty": has_terminal} if kind == EXEC else {}
        if has_terminal:
            rows, columns = size()
            request |= {"rows": rows, "columns": columns, "term": name_of_terminal()}
        opened = open_session(client, job_id, kind=kind, **place, **request)
    if opened.recorded:
        click.echo(RECORDED, err=True)
    return opened


def _run(opened: SessionTicket, ends: CallerStreams) -> CommandOutcome:
    """The terminal is as before afterwards, whatever happens."""
    with raw() if isinstance(ends, Terminal) else nullcontext():
        try:
            return asyncio.run(_until_ended(opened, ends))
        except KeyboardInterrupt:  # only without a terminal; its session ends with its connection
            sys.exit(INTERRUPTED)


async def _until_ended(opened: SessionTicket, ends: CallerStreams) -> CommandOutcome:
    running = asyncio.create_task(run_command(opened, ends))
    with hang_ups_end(running):
        await asyncio.wait({running})
    if running.cancelled():
        raise Disconnected("the session was ended by a signal to this command")
    return running.result()


def _finish(outcome: CommandOutcome) -> None:
    if outcome.message:
        click.echo(printable(outcome.message), err=True)
    sys.exit(outcome.code_of_process)
