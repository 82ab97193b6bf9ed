"""`trainyard ssh-proxy`: what `ssh` starts as its ProxyCommand to reach a running job."""

import asyncio
import os
import socket
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

import click

from app.cli.client.interactive.exec_commands import place_options
from app.cli.connection import server
from app.cli.handles import JobHandle, job_id_of
from app.domain.interactive import SSH_RANK, SSH_SUFFIX, split_ssh_host
from trainyard.client import Client, NotFound, is_job_id

_PIECE = 32 << 10


@click.command("ssh-proxy")
@click.argument("handle", type=JobHandle(), metavar="JOB")
@place_options
def ssh_proxy(*, handle: str, place: Mapping[str, Any]) -> None:
    """Speak SSH over standard input and output, and run what is asked for in the running JOB.

    For `ProxyCommand trainyard ssh-proxy %n`; docs/how-to/reach-a-running-job.md has the lines for ~/.ssh/config. A JOB
    may end in .trainyard, and begin with a place: ROLE-INDEX.JOB.trainyard, or rank-N.JOB.trainyard. The process that
    writes to its input acts with your key; it opens no port.
    """
    if find_spec("asyncssh") is None:
        raise click.ClickException("ssh-proxy needs asyncssh; install it with: pip install 'trainyard[ssh]'")
    if os.isatty(0) or os.isatty(1):
        raise click.UsageError(
            "ssh starts this program itself: put `ProxyCommand trainyard ssh-proxy %n` into ~/.ssh/config, and use ssh"
        )
    from app.cli.client.interactive.ssh_server import serve_ssh  # noqa: PLC0415 – needs asyncssh

    with server() as client:
        job_id, there = reached(client, handle.removesuffix(SSH_SUFFIX), place)
        ours, theirs = socket.socketpair()
        _carry_standard_streams(theirs)
        with suppress(KeyboardInterrupt):
            asyncio.run(serve_ssh(ours, client, job_id, there))
    sys.stderr.flush()
    os._exit(0)  # a thread may still wait for input that never comes


def reached(client: Client, host: str, asked: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The job, and the fields of a request for the place: that of the host's name, or else the ``asked`` one.

    The name of a job may look like one with a place; then it is the job's. Raises NotFound, AmbiguousHandle, and
    UsageError for two places.
    """
    named = split_ssh_host(host)
    if named is None or is_job_id(host):
        return job_id_of(client, host), dict(asked)
    name, number, handle = named
    if not is_job_id(handle):
        try:
            return client.find(host).job_id, dict(asked)
        except NotFound:
            pass
    job = client.get(job_id_of(client, handle))
    roles = [each["role"] for each in job.data.get("tasks") or []]
    if name == SSH_RANK and name not in roles:
        if asked != {"rank": 0}:
            raise click.UsageError(f"{host} names a rank already; leave --rank, --role and --index out")
        return job.job_id, {"rank": number}
    if "role" in asked:
        raise click.UsageError(f"{host} names an instance of a role already; leave --role and --index out")
    return job.job_id, {**asked, "role": name, "index": number}


def _carry_standard_streams(to: socket.socket) -> None:
    """In threads, because standard streams of ssh are pipes that must stay in blocking mode."""
    threading.Thread(target=_carry_in, args=(to,), daemon=True).start()
    threading.Thread(target=_carry_out, args=(to,), daemon=True).start()


def _carry_in(to: socket.socket) -> None:
    with suppress(OSError):
        while data := os.read(0, _PIECE):
            to.sendall(data)
        to.shutdown(socket.SHUT_WR)


def _carry_out(from_: socket.socket) -> None:
    with suppress(OSError):
        while data := from_.recv(_PIECE):
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(1, rest) :]
    with suppress(OSError):
        from_.shutdown(socket.SHUT_RDWR)  # ssh is gone
