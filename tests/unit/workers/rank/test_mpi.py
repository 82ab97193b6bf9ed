"""Ranks that mpirun starts, as real processes, in both kinds of sandbox: to the user they behave like other ranks."""

import socket
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from app.host import processes
from tests.unit.workers.rank.launching import JOB, Run, attempt_processes, make_plan, no_process_is_left, write_script
from workers.rank.mpi import MPI
from workers.sandbox.sandbox import Bubblewrap, ProcessGroup


@pytest.fixture(params=[Bubblewrap(), ProcessGroup()], ids=lambda sandbox: sandbox.kind)
def start(tmp_path, request):
    runs = []

    def start_ranks(text, **options):
        script = write_script(tmp_path / "mine", text)
        run = Run(make_plan(tmp_path, script, request.param, launcher=MPI, **options))
        runs.append(run)
        return run

    yield start_ranks
    for run in runs:
        run.close()


def ends(run):
    return {(e["rank"], e["exit_code"], e["signal"]) for e in run.exits}


@pytest.mark.long
def test_ranks_reach_each_other_by_mpi(start):
    run = start(
        "from mpi4py import MPI\n"
        "world = MPI.COMM_WORLD\n"
        "print(world.rank, world.size, world.allreduce(world.rank + 1), flush=True)\n",
        world_size=3,
    )

    assert run.finish(60) == 0
    assert [run.log(rank) for rank in range(3)] == ["0 3 6\n", "1 3 6\n", "2 3 6\n"]
    assert ends(run) == {(0, 0, None), (1, 0, None), (2, 0, None)}


def test_ranks_get_the_variables_that_they_have_without(start):
    run = start(
        "import os, sys\nprint(*[os.environ[n] for n in ('RANK','LOCAL_RANK','WORLD_SIZE','MASTER_ADDR','COLOUR',"
        "'TRAINYARD_JOB_ID')], os.getcwd().rpartition('/')[2], sys.flags.safe_path)\n",
        world_size=2,
        environment={"COLOUR": "green", "TRAINYARD_JOB_ID": "job-other"},
    )

    assert run.finish(30) == 0
    assert run.log(0).split() == ["0", "0", "2", "127.0.0.1", "green", JOB, "work", "False"]
    assert run.log(1).split() == ["1", "1", "2", "127.0.0.1", "green", JOB, "work", "False"]


def test_secrets_stand_on_no_command_line(start):
    run = start(
        "import os, pathlib\n"
        "for path in pathlib.Path('/proc').glob('[0-9]*/cmdline'):\n"
        "    try: print(path.read_text())\n"
        "    except OSError: pass\n",
        environment={"COLOUR": "hunter2"},
    )

    assert run.finish(30) == 0
    assert "workers.rank.mpi_rank" in run.log()
    assert "hunter2" not in run.log()


@pytest.mark.long
def test_first_failing_rank_is_reported_first_and_tears_the_others_down(start):
    run = start(
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "open('armed' + os.environ['RANK'], 'w').close()\n"
        "while not os.path.exists('armed0'): time.sleep(0.01)\n"
        "if os.environ['RANK'] == '1': sys.exit(3)\n"
        "time.sleep(60)\n",
        world_size=2,
    )

    assert run.finish(30) == 3
    assert [(e["rank"], e["exit_code"], e["signal"]) for e in run.exits] == [(1, 3, None), (0, 137, "SIGKILL")]
    assert no_process_is_left()


def test_silent_server_on_a_port_of_x_servers_is_not_waited_for(start):
    with ExitStack() as silent:
        for port in range(6000, 6010):
            with suppress(OSError):  # in use by another process, which may be silent, too
                silent.enter_context(socket.create_server(("127.0.0.1", port)))

        assert start("pass\n").finish(30) == 0


@pytest.mark.long
def test_killed_rank_is_reported_with_its_signal(start):
    run = start("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")

    assert run.finish(30) == 137, run.logs
    assert ends(run) == {(0, 137, "SIGKILL")}


@pytest.mark.long
def test_ranks_have_their_whole_grace_when_they_are_stopped(start):
    run = start(
        "import os, signal, sys, time\n"
        "def save(*_):\n"
        "    time.sleep(4)\n"  # longer than mpirun would give them
        "    print('saved', flush=True)\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\n"
        "print('ready', flush=True)\ntime.sleep(60)\n",
        world_size=2,
    )
    run.read_until("ready\n", rank=0, seconds=30)
    run.read_until("ready\n", rank=1, seconds=30)

    run.launched.stop(20.0)

    assert run.finish(40) == 143
    assert [run.log(rank) for rank in (0, 1)] == ["ready\nsaved\n"] * 2


@pytest.mark.long
def test_ranks_that_mpirun_has_not_started_yet_are_stopped_too(start):
    run = start("import time\ntime.sleep(60)\n", world_size=2)

    run.launched.stop(60.0)

    assert run.finish(30) == 143


def test_ranks_die_when_mpirun_is_killed(start):
    run = start("import os\nprint(os.getpid(), flush=True)\nimport time\ntime.sleep(60)\n", world_size=2)
    run.read_until("\n", rank=0, seconds=30)
    run.read_until("\n", rank=1, seconds=30)
    (mpirun,) = [pid for pid in attempt_processes() if _command(pid).endswith("mpirun")]

    processes.kill([mpirun])

    assert run.finish(30) == 137, run.logs
    assert {e["rank"] for e in run.exits} == {0, 1}
    assert no_process_is_left()


def _command(pid):
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")[0]
