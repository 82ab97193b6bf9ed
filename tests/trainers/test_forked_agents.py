"""Agents and ranks that are forked into a sandbox: a job sees and computes what it would otherwise."""

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from app.domain.lifecycle.states import JobState
from app.host import landlock, processes
from app.host.fork_servers import agents_socket
from app.services.access import projects
from tests.builders.factories import make_document, make_job
from tests.systems.people import open_sandbox, run
from tests.systems.supervising import ENDED, World, environment

# The process that forks them imports for seven seconds; in `make test-long` other files use it, too.
pytestmark = pytest.mark.long

# What a process can see of itself, without what differs between any two jobs.
FACTS = r"""
import json, os, pathlib, re, resource, signal, sys

def text(path):
    return pathlib.Path(path).read_text()

def signalled(pid):
    try:
        os.kill(pid, 0)
        return "done"
    except PermissionError:
        return "refused"

status = dict(line.split(":\t", 1) for line in text("/proc/self/status").splitlines() if ":\t" in line)
kept = "CapInh CapPrm CapEff CapBnd CapAmb NoNewPrivs Seccomp SigBlk SigIgn Uid Gid Umask".split()
lineage, pid = [], os.getpid()
while pid > 1:
    pid = int(text(f"/proc/{pid}/stat").rpartition(")")[2].split()[1])
    lineage.append(os.path.basename(pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()))
facts = {
    "status": {name: status[name] for name in kept},
    "session": [os.getsid(0) == os.getsid(os.getppid()), os.getpgid(0) == os.getsid(0)],
    "lineage": lineage,
    "files": sorted(re.sub(r"\d+", "N", os.readlink(f"/proc/self/fd/{fd}")) for fd in ("0", "1", "2")),
    "descriptors": sorted(map(int, os.listdir("/proc/self/fd")))[:-1],
    "directory": os.getcwd(),
    "limits": [resource.getrlimit(number) for number in range(16)],
    "mounts": sorted(
        re.sub(r"bindfile\w+", "bindfileN", " ".join(line.split()[3:6]))
        for line in text("/proc/self/mountinfo").splitlines()
    ),
    "groups": text("/proc/self/cgroup"),
    "environment": dict(os.environ),
    "adjustment": text("/proc/self/oom_score_adj"),
    "nice": os.nice(0),
    "arguments": sys.argv,
    "hidden": [os.listdir("/root"), os.listdir("/tmp")],
    "hostname": os.uname().nodename,
    "signals_to_init": signalled(1),
}
print("FACTS" + json.dumps(facts), flush=True)
"""
ASKS_THE_GATE = """
import socket
with socket.create_connection(("127.0.0.1", 3128), 10) as gate:
    gate.sendall(b"CONNECT other.example:443 HTTP/1.1\\r\\n\\r\\n")
    print(gate.recv(1000).decode().partition(":")[0])
"""

WAITS = "import time\nprint('ready', flush=True)\ntime.sleep(120)\n"
# Different in any two attempts.
OWN = ("MASTER_PORT",)


@pytest.fixture
def world(tmp_path, sqlite_url, assets, forked_supervisors):
    """A node in miniature that has the small model."""
    world = World(tmp_path, sqlite_url, spawn=forked_supervisors.spawn)
    shutil.copytree(assets, tmp_path / "mine" / "demo")
    yield world
    world.close()


@pytest.fixture
def warm(world, forked_agents):
    """The same node, on which agents are forked."""
    forked_agents.serve(world.data_dir)
    return world


def facts(world: World) -> dict[str, Any]:
    job_id = world.start(FACTS)
    assert world.wait_for_end(job_id).state is JobState.COMPLETED, world.describe(job_id)
    (line,) = [line for line in world.log(job_id) if line.startswith("FACTS")]
    run = f"{job_id}-1"
    cleaned = json.loads(line.removeprefix("FACTS").replace(job_id, "JOB").replace(run, "RUN"))
    for name in OWN:
        del cleaned["environment"][name]
    cleaned["arguments"], cleaned["directory"] = len(cleaned["arguments"]), "script" in cleaned["directory"]
    return dict(cleaned)


def test_job_sees_what_it_would_see_if_its_agent_had_started_as_a_program(world, forked_agents):
    cold = facts(world)
    forked_agents.serve(world.data_dir)
    warm = facts(world)

    for found in (cold, warm):
        found["mounts"] = [line for line in found["mounts"] if "script-" not in line]
        for name in [name for name, value in found["environment"].items() if "script-" in value]:
            del found["environment"][name]
    assert warm["status"].pop("CapBnd").strip("0") == ""  # root's bubblewrap leaves the bounding set as it is
    del cold["status"]["CapBnd"]
    if landlock.version() >= 6 and landlock.lack_of_landlock(in_sandbox=True) is None:
        assert warm["signals_to_init"] == "refused"
    assert warm.pop("environment") == cold.pop("environment")
    assert warm == cold


def test_agent_is_a_fork(warm):
    job_id = warm.start(WAITS)
    warm.wait_for_line(job_id, "ready")

    (agent,) = [pid for pid in warm.processes(job_id) if b"workers.rank.agent" in command_line(pid)]

    assert b"HOME" not in Path(f"/proc/{agent}/environ").read_bytes()  # a program would show all of its environment
    assert f"TRAINYARD_JOB_ID={job_id}".encode() in environment(agent)


def test_job_of_a_forked_agent_has_its_gate(warm):
    with warm.db.write() as session:
        projects.ensure(session, "default", actor="test").egress = ["localhost:1"]
    job_id = warm.start(ASKS_THE_GATE, resources={"network": "gate"})

    assert warm.wait_for_end(job_id).state is JobState.COMPLETED, warm.describe(job_id)
    assert warm.log(job_id) == ["HTTP/1.1 403 Forbidden"]
    assert [event.data["host"] for event in warm.events(job_id) if event.type == "job.connection"] == ["other.example"]


def command_line(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")


def test_nothing_of_an_attempt_is_left_when_its_supervisor_is_killed(warm):
    job_id = warm.start(WAITS)
    warm.wait_for_line(job_id, "ready")
    (supervisor,) = processes.supervisors_of(job_id, 1)

    before = warm.processes(job_id)
    os.kill(supervisor, signal.SIGKILL)

    assert len(before) > 1
    # By their states: one that is just ending has no environment any more. Init may not have reaped them yet.
    warm.wait(lambda: {processes.state_of(pid) for pid in before} <= {"", *processes.DEAD}, 5)
    assert not warm.processes(job_id)


@pytest.mark.parametrize("script", ["raise SystemExit(7)", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"])
def test_failure_of_a_rank_is_reported_as_without_a_fork(world, forked_agents, script):
    errors = []
    for _ in range(2):
        job_id = world.start(script)
        job = world.wait_for_end(job_id)
        errors.append((job.state, job.error_type, (job.error_message or "").replace(job_id, "JOB")))
        forked_agents.serve(world.data_dir)

    assert errors[0] == errors[1]


def test_server_that_is_gone_leaves_the_agent_to_start_as_a_program(world):
    address = agents_socket(world.data_dir)
    address.parent.mkdir(parents=True, exist_ok=True)
    address.symlink_to(world.directory / "nowhere.sock")

    job_id = world.start("print('done')")

    assert world.wait_for_end(job_id).state is JobState.COMPLETED


def start_training(world: World, method: str, ranks: int, **training: object) -> str:
    """The id of a job of the small model."""
    document = make_document(
        training_config={
            "training_type": method,
            "base_model": {"model_id": "demo/model"},
            "framework": {"type": "HF_TRAINER"},
            "hyperparameters": {"max_steps": "30", "learning_rate": "1e-3"},
            **training,
        },
        data_config={
            "sources": [{"path": f"demo/{DATA.get(method, 'train')}.jsonl", "format": "jsonl"}],
            "batch_size": 2,
        },
        resource_config={"gpu_count": ranks},
    )
    with world.db.write() as session:
        job_id = make_job(session, document=document).id
    world.take_up(job_id, ranks=ranks)
    return job_id


def environments_of_ranks(world: World, job_id: str) -> list[list[bytes]]:
    """As /proc shows them."""
    return [environment(pid) for pid in world.processes(job_id) if b"workers.trainers.main" in command_line(pid)]


def train(world: World, method: str, ranks: int) -> tuple[str, list[list[bytes]]]:
    """(hash of the trained weights, the ranks' environments)"""
    job_id = start_training(world, method, ranks)
    world.wait(lambda: world.job(job_id).current_step >= 1 or world.job(job_id).state in ENDED, 120, job_id)
    shown = environments_of_ranks(world, job_id)
    job = world.wait_for_end(job_id, 120)
    assert job.state is JobState.COMPLETED, world.describe(job_id)
    assert job.report is not None
    return str(job.report["model_hash"]), shown


def is_program(shown: list[bytes]) -> bool:
    return any(variable.startswith(b"PYTHONPATH=") for variable in shown)


DATA = {"DPO": "preferences", "CONTINUED_PRETRAIN": "text"}


@pytest.mark.parametrize(("method", "ranks"), [("SFT", 2), ("LORA", 1), ("DPO", 1), ("CONTINUED_PRETRAIN", 1)])
def test_forked_ranks_train_the_same_weights_bit_by_bit(world, forked_agents, method, ranks):
    cold, shown_cold = train(world, method, ranks)
    forked_agents.serve(world.data_dir)
    warm, shown_warm = train(world, method, ranks)

    assert warm == cold
    # A program shows all of its environment, a fork what names it.
    assert [is_program(environment) for environment in shown_cold] == [True] * ranks
    assert [is_program(environment) for environment in shown_warm] == [False] * ranks


@pytest.mark.parametrize(
    ("training", "variable"),
    [({"environment": {"OF_THE_JOB": "1"}}, b"OF_THE_JOB=1"), ({"warm": False}, b"PYTHONSAFEPATH=1")],
)
def test_rank_starts_as_a_program_where_a_fork_would_not_do(warm, training, variable):
    """That its training ends is shown by those that start cold."""
    job_id = start_training(warm, "SFT", 1, **training)
    shown: list[list[bytes]] = []

    def is_there() -> bool:
        shown[:] = environments_of_ranks(warm, job_id)
        return bool(shown)

    warm.wait(is_there, 60, job_id)

    # A program shows all of its environment.
    assert [variable in environment for environment in shown] == [True]


def test_sandbox_of_a_forked_agent_opens(warm):
    job_id = warm.start(WAITS)
    warm.wait_for_line(job_id, "ready")

    said, code = run(warm, open_sandbox(warm, job_id), "sh", "-c", "echo $RANK")

    assert (said, code) == ("0\n", 0)
    warm.request(job_id, "cancel")
    assert warm.wait_for_end(job_id).state is JobState.CANCELLED
