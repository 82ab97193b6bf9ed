"""One mpirun for the ranks of two nodes, as real processes: each node is a sandbox of its own on this machine."""

import json
import socket
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.workers.rank.launching import Run, make_plan, no_process_is_left, write_script
from workers.rank.agent import free_port
from workers.rank.mpi import MPI, MpiNodes
from workers.rank.mpi_part import proof
from workers.sandbox.sandbox import Bubblewrap, ProcessGroup

SECRET = "of-this-attempt"
REFUSED = (
    b"[]\n",
    b"{}\n",
    b"\xff\n",
    b"x" * 70_000 + b"\n",
    b"[" * 60_000 + b"\n",  # more than the parser's stack
    b'{"arguments": [], "proof": "\\ud800"}\n',  # half a character
    b'{"arguments": [], "proof": 1}\n',
    b'{"arguments": [{}], "proof": ""}\n',
)
ALLREDUCE = (
    "from mpi4py import MPI\n"
    "import os\n"
    "world = MPI.COMM_WORLD\n"
    "variables = [os.environ[n] for n in ('RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'NODE_RANK', 'COLOUR')]\n"
    "print(world.rank, world.size, world.allreduce(world.rank + 1), *variables, flush=True)\n"
)


class Nodes:
    """The parts of one job; their agents, logs and reports are read together."""

    def __init__(self, plans):
        self.runs = [Run(plan) for plan in plans]

    def finish(self, seconds=60.0):
        """The agents' exit codes, in the order of parts."""
        until, open_runs = time.monotonic() + seconds, list(self.runs)
        while open_runs:
            assert time.monotonic() < until, [run.logs for run in self.runs]
            open_runs = [run for run in open_runs if run._read_some()]
        return [run.launched.wait() for run in self.runs]

    def read_until(self, text, *, seconds=30.0):
        """Until every rank has said it."""
        until = time.monotonic() + seconds
        while not all(text.encode() in log for run in self.runs for log in run.logs):
            assert time.monotonic() < until, [run.logs for run in self.runs]
            for run in self.runs:
                run._read_some()

    @property
    def logs(self):
        return [log.decode() for run in self.runs for log in run.logs]

    @property
    def ends(self):
        return [(e["rank"], e["exit_code"], e.get("follows", False)) for run in self.runs for e in run.exits]


@pytest.fixture(params=[Bubblewrap(), ProcessGroup()], ids=lambda sandbox: sandbox.kind)
def start(tmp_path, request):
    made = []

    def start_nodes(text, *, local_ranks=2, nodes=2, parts=None, secrets=None, **options):
        places = tuple(("127.0.0.1", free_port()) for _ in range(nodes))
        plans, port = [], free_port()
        for part in parts if parts is not None else range(nodes):
            folder = tmp_path / f"n{part}"
            gang = {"node_rank": part, "nodes": nodes, "local_ranks": local_ranks, "port": port}
            plan = make_plan(
                folder,
                write_script(folder / "mine", text),
                request.param,
                world_size=local_ranks * nodes,
                launcher=MPI,
                gang={**gang, "address": "127.0.0.1", "interface": "lo"},
                mpi=MpiNodes(places=places, secret=(secrets or [SECRET] * nodes)[part]),
                **options,
            )
            # As of every job on several nodes.
            plans.append(replace(plan, confinement=replace(plan.confinement, own_network=False)))
        made.append(Nodes(plans))
        return made[-1]

    yield start_nodes
    for each in made:
        for run in each.runs:
            run.close()


@pytest.mark.long
def test_ranks_of_two_nodes_reach_each_other_by_mpi(start):
    nodes = start(ALLREDUCE, environment={"COLOUR": "green"})

    assert nodes.finish() == [0, 0], nodes.logs
    assert nodes.logs == [f"{rank} 4 10 {rank} {rank % 2} 4 {rank // 2} green\n" for rank in range(4)]
    assert sorted(nodes.ends) == [(rank, 0, False) for rank in range(4)]
    assert no_process_is_left()


@pytest.mark.long
def test_first_failing_rank_is_the_one_to_blame_and_ends_those_of_the_other_node(start):
    nodes = start(
        "from mpi4py import MPI\nimport os, sys, time\n"
        "MPI.COMM_WORLD.Barrier()\n"
        "if os.environ['RANK'] == '3': os._exit(3)\n"
        "time.sleep(60)\n"
    )

    codes = nodes.finish(30)

    assert codes[1] == 3, nodes.logs
    assert codes[0] != 0
    by_rank = {rank: (code, follows) for rank, code, follows in nodes.ends}
    assert by_rank[3] == (3, False)
    assert {follows for rank, (_, follows) in by_rank.items() if rank < 2} == {True}
    assert no_process_is_left()


@pytest.mark.long
def test_end_of_the_first_sandbox_ends_the_other(start):
    nodes = start("print('ready', flush=True)\nimport time\ntime.sleep(60)\n")
    nodes.read_until("ready\n")

    nodes.runs[0].launched.process.kill()

    assert nodes.finish(30)[1] != 0
    assert {rank for rank, *_ in nodes.ends} == {2, 3}


@pytest.mark.long
def test_end_of_the_other_sandbox_ends_the_first(start):
    nodes = start("print('ready', flush=True)\nimport time\ntime.sleep(60)\n")
    nodes.read_until("ready\n")

    nodes.runs[1].launched.process.kill()

    assert nodes.finish(40)[0] != 0
    assert {(rank, follows) for rank, _, follows in nodes.ends} == {(0, True), (1, True)}


@pytest.mark.long
def test_ranks_of_both_nodes_have_their_grace_when_they_are_stopped(start):
    nodes = start(
        "import signal, sys, time\n"
        "def save(*_):\n"
        "    time.sleep(4)\n"  # longer than mpirun would give them
        "    print('saved', flush=True)\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\n"
        "print('ready', flush=True)\ntime.sleep(60)\n"
    )
    nodes.read_until("ready\n")

    for run in nodes.runs:
        run.launched.stop(20.0)

    assert nodes.finish(40) == [143, 143]
    assert nodes.logs == ["ready\nsaved\n"] * 4


@pytest.mark.long
def test_torch_finds_the_ranks_that_mpi_started(start):
    nodes = start(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "x = torch.ones(1)\n"
        "dist.all_reduce(x)\n"
        "print(dist.get_rank(), int(x), flush=True)\n"
        "dist.destroy_process_group()\n",
        local_ranks=1,
    )

    assert nodes.finish(90) == [0, 0], nodes.logs
    assert nodes.logs == ["0 2\n", "1 2\n"]


def test_shared_memory_of_killed_agents_is_removed_by_the_next(tmp_path):
    left = Path(tempfile.mkdtemp(prefix="trainyard-mpi-", dir="/dev/shm"))
    (left / "lock").touch()
    script = write_script(tmp_path / "mine", "print('works', flush=True)\n")
    place = ("127.0.0.1", free_port())
    gang = {"node_rank": 0, "nodes": 1, "local_ranks": 1, "address": place[0], "port": free_port(), "interface": "lo"}
    plan = make_plan(
        tmp_path, script, ProcessGroup(), launcher=MPI, gang=gang, mpi=MpiNodes(places=(place,), secret=SECRET)
    )
    run = Run(plan)

    assert run.finish(30) == 0, run.logs
    run.close()
    assert run.log() == "works\n"
    assert not left.exists()


@pytest.mark.long
def test_another_secret_starts_nothing(start):
    nodes = start("print('started', flush=True)\n", secrets=[SECRET, "of-another-attempt"])
    until = time.monotonic() + 30
    while nodes.runs[0]._read_some() and time.monotonic() < until:
        nodes.runs[1]._read_some()

    assert nodes.runs[0].launched.wait() != 0
    assert "the proof is not of this attempt" in nodes.logs[0]
    assert nodes.ends[:2] == [(0, 1, False), (1, 1, False)]
    assert not any("started" in log for log in nodes.logs)


def test_strangers_neither_start_the_daemon_nor_keep_mpirun_out(start):
    nodes = start(ALLREDUCE, parts=[1], environment={"COLOUR": "green"})
    place = nodes.runs[0].plan.mpi.places[1]
    answers = [_asked(place, line) for line in (b"", *REFUSED, _forged())]
    with ExitStack() as silent:
        for _ in range(40):
            silent.enter_context(socket.create_connection(place))
        replayed = _asked(place, _answer_to("0" * 64))
        served = _asked(place, None)

    assert {answer.get("type") for answer in answers[1:]} == {"refused"}
    assert replayed["type"] == "refused"
    assert served["type"] == "ended"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(place, timeout=2).close()


def _forged():
    return json.dumps({"type": "start", "arguments": ["--version"], "proof": "é" * 64}).encode() + b"\n"


def _answer_to(nonce, arguments=("--version",)):
    answer = {"type": "start", "arguments": list(arguments), "proof": proof(SECRET, nonce, 1, arguments)}
    return json.dumps(answer).encode() + b"\n"


def _asked(place, line, arguments=("--version",)):
    """What it answers to the line, or to the right one."""
    until = time.monotonic() + 20
    while True:
        try:
            client = socket.create_connection(place, timeout=20)
            break
        except OSError:
            assert time.monotonic() < until
            time.sleep(0.1)
    with client, client.makefile("rb") as lines:
        nonce = json.loads(lines.readline())["nonce"]
        client.sendall(_answer_to(nonce, arguments) if line is None else line)
        if line == b"":
            return {}
        try:
            return json.loads(lines.readline() or b"{}")
        except ConnectionResetError:  # it did not read all
            return {"type": "refused"}
