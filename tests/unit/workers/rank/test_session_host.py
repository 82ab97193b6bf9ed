"""The agent's side of the session server: it waits for no server, and starts one that ends again, but not for ever."""

import json
import os
import signal
import socket
from functools import partial
from pathlib import Path

import pytest

from tests.builders.run_specs import make_run_spec
from tests.systems.gateways import ROOT
from tests.systems.system import wait_for
from trainyard.protocol.channel import short_address
from trainyard.protocol.interactive import SOCKET
from trainyard.protocol.role_instance import RoleInstance
from trainyard.protocol.run_spec import ImageEnvironment
from workers.rank.session_host import MOST_STARTS, SessionHost


def _kill_until_given_up(host: SessionHost) -> int:
    """How often the server was started; then its socket is closed."""
    starts = 0
    while host.is_open:
        starts += 1
        os.kill(host.pid, signal.SIGKILL)
        os.waitpid(host.pid, 0)
        host.ended()
    return starts


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


@pytest.mark.long
def test_a_server_that_reads_nothing_does_not_hold_the_agent(tmp_path: Path) -> None:
    """A rank may stop a new server before it has read more than a pipe holds."""
    reads_nothing = ImageEnvironment(python=("/bin/sh", "-c", "exec sleep 60", "sh"), hooks="", environment={})
    host = SessionHost(make_run_spec(run_dir=tmp_path, image=reads_nothing))

    host.open({0: {"LARGE": "x" * (1 << 20)}}, None)

    assert _kill_until_given_up(host) == MOST_STARTS


@pytest.mark.long
def test_commands_and_the_notebook_of_a_role_have_its_directory_and_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A role whose code lies in a part of the job's has packages of its own; the notebook is rank 0's."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (python := tmp_path / "of-trainer/bin/python").parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\npwd > "$0.started"\nexit 3\n')
    python.chmod(0o700)
    for name in ("trainer", "rollout", "work"):
        (tmp_path / name).mkdir()
    instances = tuple(
        RoleInstance(
            role=role,
            index=0,
            count=1,
            first_rank=rank,
            ranks=1,
            role_first_rank=0,
            role_world_size=1,
            directory=str(tmp_path / role),
            packages_path=str(tmp_path / f"of-{role}"),
        )
        for rank, role in enumerate(("trainer", "rollout"))
    )
    host = SessionHost(make_run_spec(run_dir=tmp_path, instances=instances, packages_path="/of/the/job"))
    environment = {"PATH": os.environ["PATH"]}

    host.open({0: environment, 1: environment}, {"token": "t", "base_url": "/"})
    try:
        asked = {"type": "exec", "rank": 1, "command": ["sh", "-c", "pwd > started"], "tty": False}
        with socket.socket(socket.AF_UNIX) as connection, short_address(tmp_path / SOCKET) as address:
            connection.connect(address)
            connection.sendall(json.dumps(asked).encode() + b"\n")
            wait_for(partial(_text, tmp_path / "rollout/started"), seconds=10, what="the command")
            wait_for(partial(_text, python.with_name("python.started")), seconds=10, what="the notebook")
    finally:
        _kill_until_given_up(host)

    assert python.with_name("python.started").read_text() == f"{tmp_path}/trainer\n"
    assert (tmp_path / "rollout/started").read_text() == f"{tmp_path}/rollout\n"
