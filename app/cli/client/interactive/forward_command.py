"""`trainyard port-forward`: ports of this machine that lead to ports of a running job."""

import asyncio
import re
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import click

from app.cli.client.interactive.exec_commands import place_options
from app.cli.client.interactive.forwarded_ports import serve
from app.cli.client.interactive.session_socket import SessionTicket, open_session
from app.cli.connection import server
from app.cli.handles import job_argument, job_id_of
from app.cli.output import printable
from app.domain.interactive import PORT_FORWARD
from app.domain.lifecycle.states import RUNNING
from trainyard.client import Client, ClientError, Conflict, NotFound
from trainyard.records import JobPort

HOST = "127.0.0.1"
MOST_PORT = 65535
_PAIR = re.compile(r"(?:(?P<local>[0-9]{0,5}):)?(?P<remote>[0-9]{1,5}|[a-z0-9-]{1,30})", re.ASCII)
_RULE = "write LOCAL:REMOTE as in 8080:8888, REMOTE alone for the same number here, or :REMOTE for any free one"


@dataclass(frozen=True)
class Forward:
    """``local`` is 0 for any free port, None for the number of the job's; ``remote`` is a number or a port's name."""

    local: int | None
    remote: str


class ForwardType(click.ParamType[Forward]):
    """LOCAL:REMOTE, REMOTE or :REMOTE."""

    name = "PORTS"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Forward:
        found = _PAIR.fullmatch(str(value))
        if found is None:
            self.fail(f"{value!r:.100} names no ports; {_RULE}", param, ctx)
        local, remote = found["local"], found["remote"]
        for number in (local, remote):
            if number and number.isdecimal() and int(number) > MOST_PORT:
                self.fail(f"{number} is no port: 0 to {MOST_PORT}", param, ctx)
        if remote.isdecimal() and int(remote) == 0:
            self.fail("0 is no port of a job: 1 to 65535", param, ctx)
        return Forward(None if local is None else int(local or 0), remote)


@dataclass(frozen=True)
class RemotePort:
    """A port of the job, with the place that the API is asked for: rank, role and index."""

    number: int
    place: Mapping[str, Any]


@click.command("port-forward")
@job_argument
@click.argument("forwards", nargs=-1, required=True, type=ForwardType(), metavar="LOCAL:REMOTE…")
@place_options
def port_forward(*, handle: str, forwards: tuple[Forward, ...], place: Mapping[str, Any]) -> None:
    """Forward ports of this machine's loopback interface to ports of the running JOB, until Ctrl-C.

    REMOTE is a number, or the name of a port that the job's document has, which is that of its role where it names
    one. REMOTE alone takes the same number here, :REMOTE any free one.
    """
    with server() as client:
        job_id = job_id_of(client, handle)
        _refuse_early(client, job_id)
        forwarding = _Forwarding(client, job_id)
        found = _targets(client, job_id, forwards, place)
        targets = [(each.local, target) for each, target in zip(forwards, found, strict=True)]
        try:
            asyncio.run(forwarding.run(targets))
        except KeyboardInterrupt:
            click.echo(err=True)
        if forwarding.ended is not None:
            raise forwarding.ended


def _refuse_early(client: Client, job_id: str) -> None:
    """What would fail with the first connection. Raises ClickException, and ClientError for who may not forward."""
    next(client.sessions(job_id), None)
    if (job := client.get(job_id)).status not in RUNNING:
        raise click.ClickException(f"{job_id} is {job.status} and does not run; ports are forwarded while it does")


def _targets(client: Client, job_id: str, forwards: Iterable[Forward], place: Mapping[str, Any]) -> list[RemotePort]:
    named = [each.remote for each in forwards if not each.remote.isdecimal()]
    known = {port["name"]: target_of(port, place) for port in client.ports(job_id)} if named else {}
    for name in named:
        if name not in known:
            has = ", ".join(sorted(known)) or "none"
            raise click.ClickException(f"{job_id} has no port named {name!r}; it has: {has}. A number needs no name")
    return [RemotePort(int(each.remote), place) if each.remote.isdecimal() else known[each.remote] for each in forwards]


def target_of(port: JobPort, place: Mapping[str, Any]) -> RemotePort:
    """A place that was asked for comes before the port's own; a server without roles of ports names none."""
    role = port.get("role")
    is_default = role is not None and place == {"rank": 0}
    return RemotePort(port["port"], {"rank": 0, "role": role, "index": port["index"]} if is_default else place)


class _Forwarding:
    """``ended``: why no further connection can succeed."""

    def __init__(self, client: Client, job_id: str) -> None:
        self._client, self._job_id = client, job_id
        self.ended: ClientError | None = None
        self._over = asyncio.Event()

    async def run(self, targets: Iterable[tuple[int | None, RemotePort]]) -> None:
        servers = [await self._listen(each.number if local is None else local, each) for local, each in targets]
        try:
            await self._over.wait()
        finally:
            for each in servers:
                each.close()

    async def _listen(self, local: int, target: RemotePort) -> asyncio.Server:
        remote = target.number

        async def opener() -> SessionTicket:
            return await asyncio.to_thread(
                open_session, self._client, self._job_id, kind=PORT_FORWARD, port=remote, **target.place
            )

        def failed(error: Exception) -> None:
            self._say(remote, error)

        try:
            listening = await serve(HOST, local, opener, failed)
        except OSError as error:
            raise click.ClickException(
                f"can't listen on {HOST}:{local}: {error.strerror}; take another port, as in {local + 1}:{remote}"
            ) from error
        port = listening.sockets[0].getsockname()[1]
        click.echo(f"{HOST}:{port} leads to port {remote} of {self._job_id}")
        with suppress(OSError):
            sys.stdout.flush()
        return listening

    def _say(self, remote: int, error: Exception) -> None:
        if isinstance(error, Conflict | NotFound):  # the job does not run any more
            self.ended = error
            self._over.set()
        else:
            click.echo(f"port {remote}: {printable(str(error) or type(error).__name__)}", err=True)
