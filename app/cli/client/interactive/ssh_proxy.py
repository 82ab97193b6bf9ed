"""`trainyard ssh-proxy`: what `ssh` starts as its ProxyCommand to reach a running job."""

import asyncio
import os
import socket
import sys
import threading
from contextlib import suppress
from importlib.util import find_spec

import click

from app.cli.client.interactive.exec_commands import rank_option
from app.cli.connection import server
from app.cli.handles import JobHandle, job_id_of

_SUFFIX = ".trainyard"  # of the names of jobs in a user's configuration of ssh
_PIECE = 32 << 10


@click.command("ssh-proxy")
@click.argument("handle", type=JobHandle(), metavar="JOB")
@rank_option
def ssh_proxy(*, handle: str, rank: int) -> None:
    """Speak SSH over standard input and output, and run what is asked for in the running JOB.

    For `ProxyCommand trainyard ssh-proxy %n`; docs/how-to/reach-a-running-job.md has the lines for ~/.ssh/config. A JOB
    may end in .trainyard. The process that writes to its input acts with your key; it opens no port.
    """
    if find_spec("asyncssh") is None:
        raise click.ClickException("ssh-proxy needs asyncssh; install it with: pip install 'trainyard[ssh]'")
    if os.isatty(0) or os.isatty(1):
        raise click.UsageError(
            "ssh starts this program itself: put `ProxyCommand trainyard ssh-proxy %n` into ~/.ssh/config, and use ssh"
        )
    from app.cli.client.interactive.ssh_server import serve_ssh  # noqa: PLC0415 – needs asyncssh

    with server() as client:
        job_id = job_id_of(client, handle.removesuffix(_SUFFIX))
        ours, theirs = socket.socketpair()
        _carry_standard_streams(theirs)
        with suppress(KeyboardInterrupt):
            asyncio.run(serve_ssh(ours, client, job_id, rank))
    sys.stderr.flush()
    os._exit(0)  # a thread may still wait for input that never comes


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
