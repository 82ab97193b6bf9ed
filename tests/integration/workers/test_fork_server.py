"""Fork servers: what is asked for is started once or not at all, and nothing of a request stays in the server."""

import contextlib
import json
import os
import signal
import socket
import sys
from functools import partial
from pathlib import Path

import pytest

from app.domain.lifecycle.states import JobState
from app.host import processes
from app.host.fork_servers import is_listening
from config.settings import load_settings
from tests.systems.system import wait_for
from workers.fork_server import requests
from workers.fork_server.owner import ForkServerOwner
from workers.fork_server.requests import NoForkServer, ask, connect, origin
from workers.node.spawn_supervisor import spawn_supervisor
from workers.node.warm_starts import WarmStarts

# Writes what it was asked for to the file that came with the request, and lives until it is killed.
SERVER = """
import os, sys, time
from workers.fork_server.server import serve
request = serve(*map(int, sys.argv[1:4]))
if request is not None and request.is_confirmed():
    os.write(request.files[0], request.fields["text"].encode())
    time.sleep(60)
"""
ENVIRONMENT = {"PYTHONPATH": str(Path(__file__).parents[3]), "PATH": os.environ["PATH"]}


@pytest.fixture
def server(tmp_path):
    """A fork server that is ready, and the path at which it listens."""
    owner = ForkServerOwner(tmp_path / "server.sock", [sys.executable, "-c", SERVER], ENVIRONMENT)
    with contextlib.closing(owner):
        owner.keep()
        wait_for(lambda: is_listening(tmp_path / "server.sock"), seconds=20, what="a fork server")
        yield owner, tmp_path / "server.sock"


def asked_for(path: Path, text: str) -> tuple[int, int]:
    """(pid, read end of the pipe on which it answers)"""
    reader, writer = os.pipe()
    try:
        return ask(connect(path), path, {"text": text}, [writer]), reader
    finally:
        os.close(writer)


def test_each_request_gets_a_process_of_its_own_that_outlives_the_server(server):
    owner, path = server

    pids, readers = zip(*(asked_for(path, text) for text in ("one", "two" * 100_000)), strict=True)
    assert os.read(readers[0], 100) == b"one"
    assert os.read(readers[1], 6) == b"twotwo"
    owner.close()

    assert len(set(pids)) == 2
    assert all(processes.state_of(pid) in ("S", "R") for pid in pids)
    for pid, reader in zip(pids, readers, strict=True):
        os.kill(pid, signal.SIGKILL)
        os.close(reader)
    with pytest.raises(NoForkServer, match="no fork server answers"):
        connect(path)


def test_request_of_a_client_that_gives_up_starts_nothing(server):
    _, path = server
    reader, writer = os.pipe()

    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        body = json.dumps({"text": "late", "origin": origin()}).encode()
        socket.send_fds(connection, [len(body).to_bytes(8, "big")], [writer])
        connection.sendall(body)
        assert len(connection.recv(4)) == 4  # it has the request, and waits for the go-ahead
    os.close(writer)

    assert os.read(reader, 100) == b""  # it has ended, and nothing was written
    os.close(reader)


def test_client_of_another_installation_is_not_served(server, monkeypatch):
    _, path = server
    monkeypatch.setattr(requests, "_INSTALLED", 0)

    with pytest.raises(NoForkServer):
        asked_for(path, "x")


def test_interpreter_of_a_server_can_not_be_changed_through_its_children(server):
    _, path = server
    pid, reader = asked_for(path, "x")
    program = Path(f"/proc/{pid}/exe")
    mode = Path(sys.executable).stat().st_mode

    program.chmod(0)  # as a job could that runs as its owner

    assert Path(sys.executable).stat().st_mode == mode
    assert os.read(reader, 1) == b"x"
    os.close(reader)
    os.kill(pid, signal.SIGKILL)


def test_server_that_does_not_answer_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(requests, "ANSWER_SECONDS", 0.2)
    path = tmp_path / "silent.sock"
    with requests.bind(path) as silent:
        silent.listen()
        with pytest.raises(NoForkServer):
            ask(connect(path), path, {"text": "x"})
        with pytest.raises(NoForkServer, match="a moment ago"):
            connect(path)


def test_nothing_of_a_request_is_in_the_memory_of_the_server_or_of_the_next_process(server):
    owner, path = server
    canary = "canary-" + os.urandom(8).hex()

    first, reader = asked_for(path, canary)
    assert os.read(reader, 100).decode() == canary
    os.close(reader)
    second, reader = asked_for(path, "second")
    assert os.read(reader, 100) == b"second"
    os.close(reader)

    assert canary.encode() in memory_of(first)  # the search finds what is there
    assert canary.encode() not in memory_of(owner.pid)
    assert canary.encode() not in memory_of(second)
    for pid in (first, second):
        os.kill(pid, signal.SIGKILL)


def memory_of(pid: int) -> bytes:
    """All of a process's private, writable memory."""
    found = bytearray()
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            place, flags, *_ = line.split()
            if flags.startswith("rw") and "[v" not in line:
                start, end = (int(part, 16) for part in place.split("-"))
                memory.seek(start)
                found += memory.read(end - start)
    return bytes(found)


def test_server_that_failed_is_not_started_again_at_once(server):
    owner, path = server
    os.kill(owner.pid, signal.SIGTERM)
    wait_for(lambda: is_without_server(owner), seconds=5, what="the end of the server")
    wait_for(lambda: not is_listening(path), seconds=5, what="the end of the child that waits")

    assert is_without_server(owner)


def is_without_server(owner: ForkServerOwner) -> bool:
    owner.keep()
    return owner.pid is None


def test_one_server_for_all_nodes_of_a_data_directory(server, tmp_path):
    other = ForkServerOwner(tmp_path / "server.sock", [sys.executable, "-c", SERVER], ENVIRONMENT)

    was_without = is_without_server(other)
    server[0].close()

    assert was_without
    assert not is_without_server(other)
    other.close()


def test_server_whose_children_are_killed_before_they_are_used_is_not_started_again_at_once(server):
    owner, _ = server

    wait_for(partial(has_ended_without_its_children, owner), seconds=20, what="the end of the server")

    assert is_without_server(owner)


def has_ended_without_its_children(owner: ForkServerOwner) -> bool:
    """Kill those of this moment."""
    for child in processes.descendants(owner.pid) if owner.pid is not None else ():
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    return is_without_server(owner)


def test_server_whose_imports_start_threads_does_not_serve(tmp_path, capfd):
    threaded = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n" + SERVER
    owner = ForkServerOwner(tmp_path / "server.sock", [sys.executable, "-c", threaded], ENVIRONMENT)
    owner.keep()

    wait_for(lambda: is_without_server(owner), seconds=20, what="the end of the server")

    assert "imports have started threads" in capfd.readouterr().err
    owner.close()


@pytest.mark.long
def test_forked_supervisor_is_found_as_one_that_was_started_as_a_program(world, request):
    warm = WarmStarts(world.settings, may_start=lambda: True)
    request.addfinalizer(warm.stop)
    warm.start()
    world.spawn = spawn_supervisor
    wait_for(lambda: is_listening(world.data_dir / "run/supervisors.sock"), seconds=20, what="a fork server")

    job_id = world.start("import time\nprint('ready', flush=True)\ntime.sleep(60)\n")
    world.wait_for_line(job_id, "ready")
    (pid,) = processes.supervisors_of(job_id, 1)
    environment = Path(f"/proc/{pid}/environ").read_bytes().rstrip(b"\0")
    parent = processes.parent_of(pid)

    assert environment.split(b"\0")[0] == f"TRAINYARD_DATA_DIR={world.data_dir}".encode()
    assert world.settings.database.url.encode() not in environment
    assert b"workers.supervisor.fork_server" in Path(f"/proc/{parent}/cmdline").read_bytes()
    assert os.getsid(pid) == pid
    warm.stop()
    world.request(job_id, "cancel")
    assert world.wait_for_end(job_id).state is JobState.CANCELLED


def test_setting_starts_every_supervisor_as_a_program(tmp_path):
    settings = load_settings({"TRAINYARD_DATA_DIR": str(tmp_path), "TRAINYARD_NODE_WARM": "off"})
    warm = WarmStarts(settings, may_start=lambda: True)

    warm.start()
    warm.stop()

    assert not (tmp_path / "run/supervisors.sock").exists()
