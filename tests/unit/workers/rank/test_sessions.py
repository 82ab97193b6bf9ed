"""The session server beside real ranks, in both kinds of sandbox: commands, terminals, ports, and what ends them."""

import json
import os
import re
import socket
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from app.host import processes
from tests.systems.system import wait_for
from tests.unit.workers.rank.launching import Run, make_plan, write_script
from trainyard.protocol.channel import OPEN_SESSIONS, short_address
from trainyard.protocol.interactive import (
    CLOSE,
    RESIZE,
    SOCKET,
    STATUS,
    STDERR,
    STDIN,
    STDOUT,
    FrameDecoder,
    encode_frame,
)
from workers.rank.mpi import MPI
from workers.sandbox.sandbox import Bubblewrap, ProcessGroup

SLEEPS = "import time\nprint('ready', flush=True)\ntime.sleep(120)\n"
LISTENS = """
import socket, threading, time
server = socket.create_server(("127.0.0.1", 0))
print("port", server.getsockname()[1], "up", flush=True)
while True:
    connection, _ = server.accept()
    def echo(connection=connection):
        while data := connection.recv(65536):
            connection.sendall(data.upper())
        connection.sendall(b"bye")
        connection.close()
    threading.Thread(target=echo, daemon=True).start()
"""


@pytest.fixture(params=[Bubblewrap(), ProcessGroup()], ids=lambda sandbox: sandbox.kind)
def run(request, tmp_path):
    made = []

    def start(text=SLEEPS, **options):
        run = Run(make_plan(tmp_path, write_script(tmp_path / "mine", text), request.param, **options))
        made.append(run)
        run.launched.send({"type": OPEN_SESSIONS})
        wait_for((run.plan.spec.run_dir / SOCKET).exists, seconds=10, what="it")
        return run

    yield start
    for each in made:
        each.close()


class Client:
    def __init__(self, connection):
        self.connection = connection
        self.decoder = FrameDecoder()
        self.said = {STDOUT: b"", STDERR: b"", STATUS: b""}
        self.answer = self._line()

    def _line(self):
        line = b""
        while not line.endswith(b"\n"):
            byte, passed, _, _ = socket.recv_fds(self.connection, 1, 1)
            assert byte, line
            if passed:
                self.handed_over = socket.socket(fileno=passed[0])
                self.handed_over.settimeout(15)
            line += byte
        return json.loads(line)

    def send(self, channel, payload):
        self.connection.sendall(encode_frame(channel, payload))

    def read_until(self, pattern, channel=STDOUT):
        while not re.search(pattern, self.said[channel]):
            assert self._receive(), self.said
        return self.said[channel]

    def finish(self):
        while self._receive():
            pass
        return json.loads(self.said[STATUS])

    def _receive(self):
        data = self.connection.recv(65536)
        for frame in self.decoder.feed(data):
            self.said[frame.channel] += frame.payload
        return bool(data)


@contextmanager
def asked(run, **request):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(15)
        with short_address(run.plan.spec.run_dir / SOCKET) as address:
            wait_for(lambda: _connects(connection, address), seconds=10, what="a server that listens")
        connection.sendall(json.dumps(request).encode() + b"\n")
        yield Client(connection)


def _connects(connection, address):
    try:
        connection.connect(address)
    except ConnectionRefusedError:  # the file is there, and the server does not listen yet
        return False
    return True


def test_command_has_outputs_apart_its_input_and_its_exit_code(run):
    run = run(environment={"MINE": "yes"})
    script = 'read x; echo "out $x $MINE $RANK $TRAINYARD_CHANNEL"; echo err >&2; exit 7'

    with asked(run, type="exec", command=["sh", "-c", script]) as client:
        assert client.answer == {"type": "started"}
        client.send(STDIN, b"in\n")
        client.send(CLOSE, bytes([STDIN]))
        status = client.finish()

    assert client.said[STDOUT] == b"out in yes 0 \n"
    assert client.said[STDERR] == b"err\n"
    assert status == {"exit_code": 7, "signal": None, "message": ""}


def test_command_runs_where_its_rank_runs(run):
    run = run(world_size=2)

    with asked(run, type="exec", rank=1, command=["sh", "-c", "pwd; echo $RANK"]) as client:
        client.finish()

    assert client.said[STDOUT].decode().split() == [run.plan.spec.directory, "1"]


def test_all_input_and_output_of_a_filter_arrive(run):
    run, sent = run(), os.urandom(3_000_000)

    with asked(run, type="exec", command=["cat"]) as client:
        for at in range(0, len(sent), 50_000):
            client.send(STDIN, sent[at : at + 50_000])
            client.read_until(b"")
            while len(client.said[STDOUT]) < at:  # the command's answer would fill all buffers, else
                client._receive()
        client.send(CLOSE, bytes([STDIN]))
        status = client.finish()

    assert client.said[STDOUT] == sent
    assert status["exit_code"] == 0


def test_shell_has_a_terminal_of_the_asked_size_and_follows_it(run):
    run = run()

    with asked(run, type="exec", command=[], tty=True, rows=33, columns=101, term="vt100") as client:
        client.send(STDIN, b"stty size; echo T=$TERM; tty\n")
        client.read_until(rb"33 101[^$]*T=vt100[^$]*/dev/pts/\d+")
        client.send(RESIZE, json.dumps({"rows": 20, "columns": 40}).encode())
        client.send(STDIN, b"stty size\n")
        client.read_until(rb"20 40")
        client.send(STDIN, b"exit 5\n")
        status = client.finish()

    assert status["exit_code"] == 5


def test_interrupt_of_the_terminal_reaches_the_command_in_front(run):
    run = run()

    with asked(run, type="exec", command=["sh", "-c", "echo begun; exec sleep 100"], tty=True) as client:
        client.read_until(rb"begun")
        client.send(STDIN, b"\x03")

        assert client.finish() == {"exit_code": 130, "signal": "SIGINT", "message": ""}


def test_end_of_input_ends_a_shell(run):
    run = run()

    with asked(run, type="exec", command=["cat"], tty=True) as client:
        client.send(STDIN, b"line\n")
        client.read_until(rb"line[^$]*line")
        client.send(CLOSE, bytes([STDIN]))

        assert client.finish()["exit_code"] == 0


def test_signal_that_ended_a_command_is_named(run):
    run = run()

    with asked(run, type="exec", command=["sh", "-c", "kill -9 $$"]) as client:
        assert client.finish() == {"exit_code": 137, "signal": "SIGKILL", "message": ""}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"type": "exec", "command": ["no-such-command"]}, "no-such-command: the job's sandbox has no such command"),
    ({"type": "exec", "command": ["/etc/passwd"]}, "/etc/passwd: Permission denied"),
    ({"type": "exec", "command": ["a\0b"]}, "command: a list of words"),
    ({"type": "exec", "command": "ls"}, "command: a list of words"),
    ({"type": "exec", "command": ["\ud800"]}, "command: a list of words"),
    ({"type": "exec", "rank": 3}, "rank: 3 is not on this node, which has 0"),
    ({"type": "exec", "tty": True, "rows": 0}, "rows and columns: numbers from 1 to 4096"),
    ({"type": "exec", "tty": True, "term": "a b"}, "term: the name of a terminal, such as xterm-256color"),
    ({"type": "connect", "port": "80"}, "port: a number from 1 to 65535, or 0 for the notebook"),
    ({"type": "connect", "port": 1}, "nothing listens on port 1"),
    ({"type": "connect", "port": 0}, "the job has no notebook: interactive_config.notebook is not set"),
    ({"type": "other"}, "type: exec or connect"),
]


def test_what_cannot_be_done_is_refused_with_the_reason(run):
    run = run()
    for request, said in REFUSED:
        with asked(run, **request) as client:
            assert client.answer["type"] == "refused", request
            assert client.answer["message"] == said


def test_port_of_the_job_is_connected_with_its_ends(run):
    run = run(LISTENS)
    run.read_until(" up")
    port = int(run.log().split()[1])

    with asked(run, type="connect", port=port) as client:
        assert client.answer == {"type": "started"}
        with client.handed_over as connection:
            connection.sendall(b"hello")
            assert connection.recv(100) == b"HELLO"
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(100) == b"bye"
            assert connection.recv(100) == b""


def test_what_is_sent_to_a_port_before_the_answer_is_refused(run):
    run = run()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(15)
        with short_address(run.plan.spec.run_dir / SOCKET) as address:
            connection.connect(address)
        connection.sendall(b'{"type": "connect", "port": 80}\nGET /')

        message = Client(connection).answer["message"]

    assert message == "who asks for a port sends nothing to it before the answer"


@pytest.mark.long
def test_everything_a_session_started_ends_with_its_connection(run):
    run = run()
    script = "trap '' HUP; setsid sleep 1234 & (sleep 1234 &) ; sleep 1234 & echo $$; sleep 1234"
    before = set(processes.descendants(run.launched.process.pid))

    with asked(run, type="exec", command=["sh", "-c", script]) as client:
        client.read_until(rb"\d+\n")
        wait_for(lambda: len(set(processes.descendants(run.launched.process.pid)) - before) == 5, seconds=10, what="it")

    wait_for(lambda: set(processes.descendants(run.launched.process.pid)) <= before, seconds=10, what="it")


def test_flood_that_nobody_reads_stops_and_the_server_answers_others(run):
    run = run()
    with asked(run, type="exec", command=["sh", "-c", "echo $$; exec yes"]) as flood:
        flood.read_until(rb"\d+\n")
        server = _server_of(run)
        with asked(run, type="exec", command=["echo", "quick"]) as other:
            other.finish()
        memory = _memory_of(server)
        with asked(run, type="exec", command=["echo", "quick"]) as again:
            again.finish()

        assert other.said[STDOUT] == again.said[STDOUT] == b"quick\n"
        assert memory < 64 << 20


def test_ranks_are_not_mistaken_for_commands_of_people(run):
    run = run()
    run.read_until("ready")
    root = run.launched.process.pid
    wait_for(lambda: 0 in processes.ranks_below(root), seconds=10, what="it")
    rank = processes.ranks_below(root)

    with asked(run, type="exec", command=["sh", "-c", "sleep 100 & echo up; sleep 100"]) as client:
        client.read_until(rb"up")

        assert processes.ranks_below(root) == rank


def test_ranks_of_mpirun_are_reached_too(run):
    run = run(launcher=MPI, world_size=2)
    run.read_until("ready", rank=1)
    root = run.launched.process.pid
    wait_for(lambda: sorted(processes.ranks_below(root)) == [0, 1], seconds=10, what="both ranks")

    with asked(run, type="exec", rank=1, command=["sh", "-c", "echo $RANK of $WORLD_SIZE"]) as client:
        client.finish()

    assert client.said[STDOUT] == b"1 of 2\n"
    assert sorted(processes.ranks_below(root)) == [0, 1]


def test_sessions_end_with_the_ranks(run):
    run = run()
    with asked(run, type="exec", command=["sleep", "100"]) as client:
        run.launched.stop(1.0)

        assert client.connection.recv(100) == b""
    assert run.finish() != 0


def test_server_that_the_job_kills_starts_again(run):
    run = run()
    with asked(run, type="exec", command=["sh", "-c", "read x; kill -9 $PPID; sleep 9"]) as client:
        client.send(STDIN, b"now\n")
        assert client.connection.recv(100) == b""

    with asked(run, type="exec", command=["echo", "again"]) as client:
        client.finish()
    assert client.said[STDOUT] == b"again\n"


@pytest.mark.long
def test_hundred_shells_at_once(run):
    run, shells = run(), []
    for number in range(100):
        context = asked(run, type="exec", command=["sh"], tty=True)
        client = context.__enter__()
        client.send(STDIN, b"echo num''ber %d\n" % number)
        shells.append((context, client))
    for number, (_, client) in enumerate(shells):
        client.read_until(rb"number %d\r" % number)
    for context, _ in shells:
        context.__exit__(None, None, None)

    with asked(run, type="exec", command=["echo", "still"]) as client:
        client.finish()
    assert client.said[STDOUT] == b"still\n"


def _server_of(run):
    def found():
        pids = processes.descendants(run.launched.process.pid)
        return [pid for pid in pids if b"workers.rank.sessions" in _command_line(pid)]

    wait_for(lambda: bool(found()), seconds=10, what="it")
    return found()[0]


def _command_line(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _memory_of(pid):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
