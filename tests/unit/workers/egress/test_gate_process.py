"""The process of a gate: what it may do, what it says, and that it leaves with the process that started it."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app.host import processes
from tests.systems.system import wait_for
from workers.egress.gate_process import GateProcess

STARTER = """
import socket, time
from workers.egress.gate_process import GateProcess
listener = socket.create_server(("127.0.0.1", 0))
GateProcess(["localhost:1"], [], print).serve(listener.detach())
print("started", flush=True)
time.sleep(60)
"""


def gates_below(pid: int) -> list[int]:
    return [each for each in processes.descendants(pid) if b"workers.egress" in _command_line(each)]


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has ended
        return b""


def status_of(pid: int) -> dict[str, list[str]]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: values.split() for name, _, values in (line.partition(":") for line in lines)}


def test_gate_has_no_permissions_and_still_looks_names_up() -> None:
    notes: list[dict[str, Any]] = []
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    gate = GateProcess(["localhost:1"], [], notes.append)
    gate.serve(listener.detach())
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
            client.sendall(b"CONNECT localhost:1 HTTP/1.1\r\n\r\n")
            assert client.recv(1000).startswith(b"HTTP/1.1 403")
        (pid,) = gates_below(os.getpid())
        status = status_of(pid)
    finally:
        gate.close()

    assert status["NoNewPrivs"] == ["1"]
    assert int(status["CapEff"][0], 16) == 0
    assert os.geteuid() != 0 or set(status["Uid"]) == {"65534"}
    assert [(note["host"], note["refused"]) for note in notes] == [("localhost", "it leads to a private address")]
    assert gates_below(os.getpid()) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_gate_ends_with_the_process_that_started_it(number: int) -> None:
    with subprocess.Popen([sys.executable, "-c", STARTER], stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == b"started\n"
        (gate,) = gates_below(starter.pid)
        wait_for(lambda: status_of(gate)["NoNewPrivs"] == ["1"], seconds=10, what="the gate runs")
        starter.send_signal(number)
        starter.wait()

        wait_for(lambda: b"workers.egress" not in _command_line(gate), seconds=10, what="the gate has ended")
