"""The guards themselves: they must detect every leak, since an undetected one affects later tests."""

import socket
import subprocess
import sys
import threading

import psutil
import pytest
from flask import Flask

from tests import guards


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch):
    monkeypatch.setattr(guards, "GRACE_SECONDS", 0.2)


def test_thread_left_running_fails_the_test():
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, name="left-behind")

    with pytest.raises(AssertionError, match="left-behind"), guards.no_leaked_threads():
        thread.start()

    stop.set()
    thread.join()


def test_thread_that_ends_within_the_grace_is_no_leak():
    with guards.no_leaked_threads():
        threading.Timer(0.05, lambda: None).start()


@pytest.mark.parametrize("environment", [None, {}], ids=["marked", "empty environment"])
def test_process_left_running_is_killed_and_fails_the_test(environment):
    with pytest.raises(AssertionError, match="left running"), guards.no_leaked_processes(set()):
        process = subprocess.Popen(["sleep", "60"], env=environment)

    assert process.wait(timeout=5) < 0


def test_orphan_in_a_session_of_its_own_is_found():
    starter = "import subprocess as s; print(s.Popen(['sleep', '60'], start_new_session=True, stdout=s.DEVNULL).pid)"

    with pytest.raises(AssertionError, match="sleep 60"), guards.no_leaked_processes(set()):
        said = subprocess.run([sys.executable, "-c", starter], stdout=subprocess.PIPE, check=True)

    assert not _alive(int(said.stdout))


def test_process_of_a_longer_fixture_is_left_alone():
    owned: set[int] = set()

    with guards.no_leaked_processes(owned):
        process = subprocess.Popen(["sleep", "60"])
        owned.add(process.pid)

    assert process.poll() is None
    process.kill()
    process.wait()


def test_process_left_running_is_found_although_another_guard_has_looked_meanwhile():
    def start() -> subprocess.Popen[bytes]:
        process = subprocess.Popen(["sleep", "60"])
        with guards.no_leaked_processes(set()):
            return process

    with pytest.raises(AssertionError, match="sleep 60"), guards.no_leaked_processes(set()):
        process = start()

    assert process.wait(timeout=5) < 0


def test_process_that_began_between_two_tests_is_left_alone():
    with guards.no_leaked_processes(set()):
        pass
    process = subprocess.Popen(["sleep", "60"])

    with guards.no_leaked_processes(set()):
        subprocess.run(["true"], check=True)

    assert process.poll() is None
    process.kill()
    process.wait()


def test_open_app_context_fails_the_test():
    context = Flask("empty").app_context()

    with pytest.raises(AssertionError, match="app context"), guards.no_leaked_app_context():
        context.push()

    context.pop()


@pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1"])
def test_connection_to_another_machine_is_refused(host):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET

    with socket.socket(family) as sock, pytest.raises(guards.RemoteConnectionError):
        sock.connect((host, 80))


def test_connection_to_this_machine_is_let_through():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        assert client.getpeername() == server.getsockname()


def _alive(pid):
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
