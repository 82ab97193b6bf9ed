"""The agent and its ranks, as real processes, in both kinds of sandbox."""

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from app.host import processes
from tests.systems.system import wait_for
from tests.unit.workers.rank.launching import JOB, Run, attempt_processes, make_plan, no_process_is_left, write_script
from trainyard.protocol.run_spec import Gang
from workers.rank.environment import rank_environment
from workers.sandbox.sandbox import Bubblewrap, ProcessGroup

SANDBOXES = [Bubblewrap(), ProcessGroup()]


@pytest.fixture(params=SANDBOXES, ids=lambda sandbox: sandbox.kind)
def sandbox(request):
    return request.param


@pytest.fixture
def start(tmp_path, sandbox):
    runs = []

    def start_ranks(text, **options):
        run = Run(make_plan(tmp_path, write_script(tmp_path / "mine", text), sandbox, **options))
        runs.append(run)
        return run

    yield start_ranks
    for run in runs:
        run.close()


def test_ranks_get_the_torchrun_environment(start):
    run = start(
        "import os\nprint(*[os.environ[n] for n in ('RANK','LOCAL_RANK','WORLD_SIZE','LOCAL_WORLD_SIZE',"
        "'MASTER_ADDR','OMP_NUM_THREADS','CUDA_VISIBLE_DEVICES','TRAINYARD_JOB_ID','HF_HUB_OFFLINE')])\n",
        world_size=2,
    )

    assert run.finish() == 0
    assert run.log(0).split() == ["0", "0", "2", "2", "127.0.0.1", "1", JOB, "1"]
    assert run.log(1).split() == ["1", "1", "2", "2", "127.0.0.1", "1", JOB, "1"]


def test_job_environment_reaches_ranks_but_cannot_replace_ours(start):
    run = start(
        "import os\nprint(os.environ['COLOUR'], os.environ['RANK'], os.environ['TRAINYARD_JOB_ID'])\n",
        environment={"COLOUR": "green", "RANK": "7", "TRAINYARD_JOB_ID": "job-other"},
    )

    assert run.finish() == 0
    assert run.log() == f"green 0 {JOB}\n"


def test_credentials_of_the_node_do_not_reach_ranks(start, monkeypatch):
    monkeypatch.setenv("TRAINYARD_DATABASE_URL", "postgresql://user:hunter2@db/trainyard")
    monkeypatch.setenv("HTTPS_PROXY", "http://user:hunter2@proxy")
    of_the_agent = "try: print(open(f'/proc/{os.getppid()}/environ').read())\nexcept OSError: print('hidden')\n"
    run = start(f"import os\nprint(os.environ)\n{of_the_agent}")

    assert run.finish() == 0
    assert "hunter2" not in run.log()


def test_script_imports_its_siblings_and_trainyard(start, tmp_path):
    write_script(tmp_path / "mine", "name = 'sibling'\n", "config.py")
    run = start("import config, trainyard, sys\nprint(config.name, sys.flags.safe_path)\n")

    assert run.finish() == 0
    assert run.log() == "sibling False\n"


def test_stderr_and_stdout_arrive_per_rank(start):
    run = start(
        "import os, sys\nprint('out', os.environ['RANK'])\nprint('err', os.environ['RANK'], file=sys.stderr)\n",
        world_size=2,
    )

    assert run.finish() == 0
    assert sorted(run.log(1).splitlines()) == ["err 1", "out 1"]


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
    began = time.monotonic()

    assert run.finish() == 3
    assert time.monotonic() - began < 5
    assert [(e["rank"], e["exit_code"], e["signal"]) for e in run.exits] == [(1, 3, None), (0, 137, "SIGKILL")]
    assert no_process_is_left()


def test_killed_rank_is_reported_with_its_signal(start):
    run = start("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")

    assert run.finish() == 137
    (gone,) = run.exits
    assert 0 <= time.monotonic() - gone.pop("at") < 60
    assert gone == {"type": "rank_exit", "rank": 0, "exit_code": 137, "signal": "SIGKILL"}


def test_stop_lets_ranks_end_by_sigterm(start):
    run = start(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('saying goodbye'), sys.exit(0)))\n"
        "print('ready', flush=True)\ntime.sleep(60)\n"
    )
    run.read_until("ready")

    run.launched.stop(3.0)

    assert run.finish() == 143
    assert "saying goodbye" in run.log()


@pytest.mark.parametrize("world_size", [1, 2])
def test_stop_at_the_moment_of_the_start_is_not_lost(start, world_size):
    run = start("import time\ntime.sleep(60)\n", world_size=world_size)

    run.launched.stop(50.0)

    assert run.finish(25) == 143


def test_stop_kills_what_ignores_sigterm_after_the_grace(start):
    run = start(
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('ready', flush=True)\ntime.sleep(60)\n"
    )
    run.read_until("ready")
    began = time.monotonic()

    run.launched.stop(0.5)

    assert run.finish() == 143
    assert 0.4 < time.monotonic() - began < 4
    assert run.exits[0]["signal"] == "SIGKILL"


DAEMON = (
    "import os, sys, time\n"
    "if os.fork() == 0:\n"
    "    os.setsid()\n"
    "    if os.fork() == 0:\n"
    "        print('daemon runs', flush=True)\n"
    "        time.sleep(60)\n"
    "    os._exit(0)\n"
    "time.sleep({seconds})\n"
)


def test_daemonised_grandchild_does_not_outlive_the_ranks(start):
    run = start(DAEMON.replace("{seconds}", "0.5"))

    assert run.finish() == 0
    assert "daemon runs" in run.log()
    assert run.launched.kill()
    assert no_process_is_left()


def test_kill_ends_everything_at_once(start):
    run = start(DAEMON.replace("{seconds}", "60"), world_size=2)
    run.read_until("daemon runs", rank=1)

    assert run.launched.kill()

    assert no_process_is_left()


def test_ranks_start_quickly(start):
    began = time.monotonic()
    run = start("print('first line')\n")

    run.read_until("first line")

    assert time.monotonic() - began < 2


SUPERVISOR = """
import sys, time
from pathlib import Path
from tests.unit.workers.rank.launching import Run, make_plan
from workers.sandbox.sandbox import Bubblewrap, ProcessGroup
sandbox = {"bubblewrap": Bubblewrap, "process": ProcessGroup}[sys.argv[2]]()
run = Run(make_plan(Path(sys.argv[1]), Path(sys.argv[1]) / "mine/train.py", sandbox))
run.read_until("ready")
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped"])
def test_ranks_die_with_their_supervisor(tmp_path, sandbox, stopped):
    write_script(tmp_path / "mine", "import time\nprint('ready', flush=True)\ntime.sleep(60)\n")
    supervisor = subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, str(tmp_path), sandbox.kind], stdout=subprocess.PIPE
    )
    assert supervisor.stdout is not None
    assert supervisor.stdout.readline() == b"ready\n"
    ranks = attempt_processes()
    assert ranks

    processes.kill(ranks, signal.SIGSTOP if stopped else signal.SIGCONT)
    supervisor.kill()
    supervisor.wait()

    wait_for(lambda: not attempt_processes(), seconds=5, what="the end of all ranks")
    supervisor.stdout.close()


def test_log_pipes_are_closed_in_the_parent(start):
    run = start("pass\n")

    run.finish()

    (log, *_) = run.launched.log_fds
    # The sandbox's own first process ends a moment after the rank.
    assert select.select([log], [], [], 30.0)[0] == [log]
    assert os.read(log, 10) == b""


def test_rank_that_ends_by_a_signal_without_a_name_is_reported(start):
    run = start("import os\nos.kill(os.getpid(), 40)\n")

    assert run.finish() == 168
    assert (run.exits[0]["exit_code"], run.exits[0]["signal"]) == (168, "SIG40")


@pytest.mark.parametrize(
    ("spec", "visible"),
    [
        ({"device_type": "cuda", "device_indices": [2, 3], "device_uuids": ["GPU-c", "GPU-d"]}, "GPU-c,GPU-d"),
        ({"device_type": "cuda", "device_indices": [2, 3], "device_uuids": []}, "2,3"),
        ({"device_type": "cpu", "device_indices": [0, 1]}, ""),
    ],
)
def test_ranks_see_the_gpus_of_their_job(tmp_path, spec, visible):
    plan = make_plan(tmp_path, tmp_path / "train.py", ProcessGroup())

    environment = rank_environment(replace(plan.spec, **spec), plan.spec_path, 0, ("127.0.0.1", 1234), {})

    assert environment["CUDA_VISIBLE_DEVICES"] == visible


def test_ranks_get_the_fraction_of_their_gpu_in_the_environment(tmp_path):
    plan = make_plan(tmp_path, tmp_path / "train.py", ProcessGroup())

    def fraction(**spec):
        environment = rank_environment(replace(plan.spec, **spec), plan.spec_path, 0, ("127.0.0.1", 1234), {})
        return environment["TRAINYARD_GPU_MEMORY_FRACTION"]

    assert (fraction(), fraction(gpu_memory_fraction=0.25)) == ("1.0", "0.25")


@pytest.mark.parametrize(
    ("spec", "kept"),
    [
        ({"framework": "HF_TRAINER", "device_type": "cpu"}, True),
        ({"framework": "HF_TRAINER", "device_type": "cuda"}, False),
        ({"framework": "CUSTOM", "device_type": "cpu"}, False),
    ],
)
def test_only_built_in_trainers_on_the_cpu_keep_freed_memory(tmp_path, spec, kept):
    plan = make_plan(tmp_path, tmp_path / "train.py", ProcessGroup())

    environment = rank_environment(replace(plan.spec, **spec), plan.spec_path, 0, ("127.0.0.1", 1234), {})

    assert ({"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"} <= environment.keys()) == kept


def test_a_job_may_set_how_memory_is_kept(tmp_path):
    plan = make_plan(tmp_path, tmp_path / "train.py", ProcessGroup())
    spec = replace(plan.spec, framework="HF_TRAINER")

    environment = rank_environment(spec, plan.spec_path, 0, ("127.0.0.1", 1234), {"MALLOC_TRIM_THRESHOLD_": "1"})

    assert environment["MALLOC_TRIM_THRESHOLD_"] == "1"


def test_libraries_that_ranks_inherit_are_seen_in_a_home_directory(tmp_path, monkeypatch):
    with tempfile.TemporaryDirectory(dir=Path.home(), prefix=".trainyard-test-") as home:
        (Path(home) / "libx.so").write_text("library")
        monkeypatch.setenv("LD_LIBRARY_PATH", f"{home}:/root:")
        script = write_script(
            tmp_path / "mine", "import os\nprint(os.listdir(os.environ['LD_LIBRARY_PATH'].split(':')[0]))\n"
        )
        run = Run(make_plan(tmp_path, script, Bubblewrap()))
        try:
            assert run.finish() == 0
            assert run.log() == "['libx.so']\n"
        finally:
            run.close()


def test_ranks_of_the_second_node_know_their_place_among_all(tmp_path):
    plan = make_plan(tmp_path, tmp_path / "train.py", ProcessGroup(), world_size=4)
    gang = Gang(node_rank=1, nodes=2, local_ranks=2, address="10.0.0.1", port=23456, interface="eth7")

    environment = rank_environment(replace(plan.spec, gang=gang), plan.spec_path, 1, ("10.0.0.1", 23456), {})

    named = (
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "NODE_RANK",
        "NNODES",
        "MASTER_ADDR",
        "MASTER_PORT",
    )
    assert [environment[name] for name in named] == ["3", "1", "4", "2", "1", "2", "10.0.0.1", "23456"]
    assert environment["GLOO_SOCKET_IFNAME"] == environment["NCCL_SOCKET_IFNAME"] == "eth7"


def test_script_finds_model_and_data_by_variables_that_its_words_may_name(tmp_path, start):
    data = tmp_path / "set.jsonl"
    data.touch()
    words = ["--data", "$(TRAINYARD_DATA_0)", "--model=$(TRAINYARD_MODEL)", "$(MINE)", "$(RANK)", "$$(RANK)"]
    said = "import sys\nprint(*sys.argv[1:], flush=True)\n"

    run = start(said, arguments=words, readable=(data,), environment={"MINE": "$(TRAINYARD_DATA_0).bak"})

    assert run.finish() == 0
    assert run.log() == f"--data {data} --model=/srv/models/base {data}.bak 0 $(RANK)\n"


def test_script_finds_the_halts_that_are_still_to_come_in_a_variable(tmp_path):
    plan = make_plan(tmp_path, tmp_path / "train.py", ProcessGroup())
    halts = {"halt_at": {"unit": "steps", "at": [100, 300, 900]}}
    spec = replace(plan.spec, training_config=halts, resume_step=100)

    def variable(**changes):
        found = rank_environment(replace(spec, **changes), plan.spec_path, 0, ("127.0.0.1", 1234), {})
        return found.get("TRAINYARD_HALT_AT")

    assert variable() == "300,900"
    assert variable(resume_step=900) is None
    assert variable(framework="HF_TRAINER") is None


def test_only_the_ranks_of_its_own_node_are_started(tmp_path, start):
    said = "import os\nprint('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'], flush=True)\n"
    gang = {"node_rank": 1, "nodes": 2, "local_ranks": 1, "address": "127.0.0.1", "port": 23456, "interface": "lo"}

    run = start(said, gang=gang, world_size=2)

    assert run.finish() == 0
    assert [run.log(rank).strip() for rank in range(len(run.logs))] == ["rank 1 of 2"]
    assert [exited["rank"] for exited in run.exits] == [1]


def test_script_is_called_with_its_arguments(start):
    run = start("import sys\nprint(sys.argv[1:])\n", arguments=["--rate", "1e-3", "two words", ""])

    assert run.finish() == 0
    assert run.log() == "['--rate', '1e-3', 'two words', '']\n"


def test_command_starts_beside_its_code_with_the_interpreter_that_has_our_packages(start):
    run = start(
        "import os, sys, trainyard\nprint(sys.argv[1:], os.listdir(), sys.executable)\n",
        command=["python", "train.py", "-x"],
    )

    assert run.finish() == 0
    assert run.log() == f"['-x'] ['train.py'] {Path(sys.executable).parent / 'python'}\n"


def test_missing_program_is_logged(start):
    run = start("", command=["no-such-program"])

    assert run.finish() != 0
    assert "no-such-program" in run.log()
