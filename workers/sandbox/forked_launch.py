"""Starts a program as a fork of a process with the trainers' imports behind it, in a sandbox made as always.

Bubblewrap makes the sandbox with a shell in it that waits. The fork enters the sandbox beside the shell, and at its end
gives the shell its exit code, with which bubblewrap ends.
"""

import contextlib
import json
import logging
import os
import select
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from app.host.fork_servers import agents_socket
from workers.fork_server.requests import MOST_FILES, ask, connect
from workers.sandbox.control_groups import joining
from workers.sandbox.sandbox import BUBBLEWRAP, Sandbox
from workers.sandbox.spec import SandboxSpec

log = logging.getLogger(__name__)

# Says that the sandbox is made; then waits for the exit code, which is that of SIGKILL if none comes.
_SHELL = ("sh", "-c", "echo made; exec >&-; read code; exit ${code:-137}")
_MADE = b"made\n"
SANDBOX_SECONDS = 10.0
_INFO_BYTES = 4096


AGENT, INSPECTION = "agent", "inspection"


@dataclass(frozen=True)
class Forked:
    """What is forked, and what it would be started with as a program: an agent or an inspection."""

    kind: str
    spec_path: Path
    command: Sequence[str]
    environment: Mapping[str, str]


def launch_forked(
    sandbox: Sandbox, spec: SandboxSpec, program: Forked, output: int, files: Sequence[int] = ()
) -> subprocess.Popen[bytes] | None:
    """The process of the sandbox with the program in it; None when it has to be started as a program.

    The fork gets ``files``, and writes to ``output``.
    """
    address = agents_socket(spec.view.data_dir)
    if sandbox.kind != BUBBLEWRAP or len(files) + 3 > MOST_FILES or not address.exists():
        return None
    with _pipe() as (code_reader, code_writer):
        process = None
        try:
            with connect(address) as connection:  # before a sandbox is made in vain
                process, pid = _make(sandbox, spec, program.environment, code_reader, output)
                request = {
                    "sandbox_pid": pid,
                    "joined": list(map(str, spec.joined)),
                    "user": [spec.account.uid, spec.account.gid] if spec.user is not None else [],
                    "kind": program.kind,
                    "spec": str(program.spec_path),
                    "directory": str(spec.view.run_dir),
                    "command": list(program.command),
                    "environment": dict(program.environment),
                }
                with _pidfd(pid) as inside:
                    ask(connection, address, request, [inside, code_writer.fileno(), output, *files])
        except OSError as error:
            log.info("the %s starts as a program: %s", program.kind, error)
            if process is not None:
                process.kill()
                process.wait()
            return None
    return process


def _make(
    sandbox: Sandbox, spec: SandboxSpec, environment: Mapping[str, str], code: IO[bytes], output: int
) -> tuple[subprocess.Popen[bytes], int]:
    """The process of a sandbox with the waiting shell, and the pid of the first process inside. Raises OSError."""
    with (
        _pipe() as (made_reader, made_writer),
        _pipe() as (info_reader, info_writer),
        sandbox.enclosed(_SHELL, spec) as enclosed,
    ):
        process = subprocess.Popen(
            joining(spec.joined, enclosed.with_options("--info-fd", str(info_writer.fileno()))),
            env=environment,
            cwd=spec.view.run_dir,
            stdin=code,
            stdout=made_writer,
            stderr=output,
            pass_fds=[info_writer.fileno(), *enclosed.files],
            start_new_session=True,
        )
        made_writer.close()
        ready, _, _ = select.select([made_reader], [], [], SANDBOX_SECONDS)
        if not ready or made_reader.read(len(_MADE)) != _MADE:
            process.kill()
            process.wait()
            raise OSError("bubblewrap made no sandbox")
        return process, int(json.loads(info_reader.read(_INFO_BYTES))["child-pid"])


@contextlib.contextmanager
def _pipe() -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """(read end, write end)"""
    reader, writer = os.pipe()
    with open(reader, "rb", buffering=0) as first, open(writer, "wb", buffering=0) as second:  # noqa: PTH123
        yield first, second


@contextlib.contextmanager
def _pidfd(pid: int) -> Iterator[int]:
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
