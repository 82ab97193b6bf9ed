"""The agent and the instances of roles, as real processes: their order, restarts, sidecars and what they see."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.host import processes
from tests.systems.system import wait_for
from tests.unit.workers.rank.launching import JOB, Run, make_plan, write_script
from trainyard.protocol.role_instance import RoleInstance
from trainyard.protocol.role_messages import RELEASE, ROLES_STARTED
from trainyard.protocol.run_spec import Gang
from workers.sandbox.launcher import LaunchPlan
from workers.sandbox.sandbox import Bubblewrap, ProcessGroup

SAYS = "print('{}', flush=True)"
SLEEPS = "import time; print('ready', flush=True); time.sleep(60)"
FAILS_TWICE = """
import pathlib, sys
times = pathlib.Path("times")
number = int(times.read_text()) if times.exists() else 0
times.write_text(str(number + 1))
print("run", number, flush=True)
sys.exit(7 if number < 2 else 0)
"""
Start = Callable[..., Run]


def instance(role: str, code: str, index: int = 0, **options: Any) -> RoleInstance:
    given = {"count": 1, "first_rank": 0, "ranks": 1, "role_first_rank": 0, "role_world_size": 1} | options
    return RoleInstance(role=role, index=index, command=("python3", "-c", code), **given)


@pytest.fixture(params=[Bubblewrap(), ProcessGroup()], ids=lambda sandbox: sandbox.kind)
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Start]:
    runs: list[Run] = []

    def launched(*instances: RoleInstance, **fields: Any) -> Run:
        plan = make_plan(tmp_path, write_script(tmp_path / "mine", ""), request.param)
        run = Run(with_roles(plan, instances, **fields))
        runs.append(run)
        return run

    yield launched
    for run in runs:
        run.close()


def with_roles(
    plan: LaunchPlan, instances: tuple[RoleInstance, ...], environments: Any = None, **fields: Any
) -> LaunchPlan:
    placed = tuple(replace(each, directory=plan.spec.directory, port=29500, address="127.0.0.1") for each in instances)
    ranks = sum(each.ranks for each in instances)
    spec = replace(plan.spec, **{"instances": placed, "world_size": ranks, **fields})
    plan.spec_path.write_text(json.dumps(spec.to_document()))
    return replace(plan, spec=spec, role_environments=environments or {})


def told(run: Run, kind: str) -> list[dict[str, Any]]:
    return [message for message in run.exits if message["type"] == kind]


def wait_until_work_ended(run: Run) -> None:
    wait_for(lambda: run._read_some() and bool(told(run, "work_ended")), seconds=10, what="the work to end")


def test_ranks_see_their_place_in_their_role_and_where_the_roles_are(start: Start) -> None:
    names = "RANK WORLD_SIZE LOCAL_RANK NODE_RANK NNODES MASTER_PORT TRAINYARD_ROLE TRAINYARD_TASK_INDEX TRAINYARD_RANK"
    shows = f"import os; print(*[os.environ[n] for n in '{names}'.split()], os.environ['TRAINYARD_TASKS'])"
    places = {"trainer": [{"index": 0, "address": "127.0.0.1", "port": 23456}]}
    run = start(
        instance("trainer", shows, ranks=2, role_world_size=2),
        instance("rollout", shows, index=1, count=2, first_rank=3, role_first_rank=1, role_world_size=2),
        tasks=places,
    )

    assert run.finish() == 0
    tasks = json.dumps(places)
    assert run.log(0) == f"0 2 0 0 1 29500 trainer 0 0 {tasks}\n"
    assert run.log(1) == f"1 2 1 0 1 29500 trainer 0 1 {tasks}\n"
    assert run.log(2) == f"1 2 0 1 2 29500 rollout 1 3 {tasks}\n"
    assert sorted(each["rank"] for each in told(run, "rank_exit")) == [0, 1, 3]


def test_each_role_has_its_own_variables(start: Start) -> None:
    shows = "import os; print(os.environ.get('COLOUR'))"
    run = start(instance("a", shows), instance("b", shows, first_rank=1), environments={"b": {"COLOUR": "green"}})

    assert run.finish() == 0
    assert (run.log(0), run.log(1)) == ("None\n", "green\n")


def test_an_instance_waits_for_the_roles_that_it_depends_on(start: Start) -> None:
    run = start(
        instance("late", SAYS.format("late"), depends_on=("other", "early")),
        instance("early", SAYS.format("early"), first_rank=1),
    )
    run.read_until("early", rank=1)
    assert [each["role"] for each in told(run, "instance_started")] == ["early"]

    run.launched.send({"type": ROLES_STARTED, "roles": ["other"]})

    assert run.finish() == 0
    assert [each["role"] for each in told(run, "instance_started")] == ["early", "late"]
    assert len(told(run, "work_ended")) == 1


def test_an_instance_that_fails_starts_again_alone(start: Start) -> None:
    run = start(instance("server", SLEEPS, sidecar=True), instance("flaky", FAILS_TWICE, first_rank=1, max_restarts=2))
    run.read_until("run 2", rank=1)
    wait_until_work_ended(run)

    run.launched.send({"type": RELEASE, "grace_seconds": 5.0})

    assert run.finish() == 0
    assert run.log(1) == "run 0\nrun 1\nrun 2\n"
    again = [(each["role"], each["index"], each["exit_code"], each["restarts"]) for each in told(run, "task_restarted")]
    assert again == [("flaky", 0, 7, 1), ("flaky", 0, 7, 2)]
    assert [(each["rank"], each["exit_code"]) for each in told(run, "rank_exit")] == [(1, 0)]
    assert run.log(0) == "ready\n"


def test_after_its_restarts_an_instance_ends_all(start: Start) -> None:
    run = start(instance("server", SLEEPS), instance("flaky", FAILS_TWICE, first_rank=1, max_restarts=1))

    assert run.finish() == 7
    assert run.log(1) == "run 0\nrun 1\n"
    exits = {each["rank"]: each["exit_code"] for each in told(run, "rank_exit")}
    assert exits == {1: 7, 0: 143}


def test_all_ranks_of_an_instance_start_again_and_what_they_left_is_killed(start: Start) -> None:
    breaks = """
import os, pathlib, subprocess, sys, time
first = not pathlib.Path(f"was-{os.environ['RANK']}").exists()
pathlib.Path(f"was-{os.environ['RANK']}").touch()
if first and os.environ["RANK"] == "1":
    while not pathlib.Path("was-0").exists(): time.sleep(0.01)
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    sys.exit(1)
print("first" if first else "again", flush=True)
if first: time.sleep(60)
"""
    run = start(instance("pair", breaks, ranks=2, role_world_size=2, max_restarts=1))

    assert run.finish() == 0
    assert run.log(0) == "first\nagain\n"
    assert run.log(1) == "again\n"
    assert processes.processes_of_attempt(JOB, 1) == []


@pytest.mark.long
def test_sidecars_are_stopped_with_a_grace_and_then_killed(start: Start) -> None:
    stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEPS
    polite = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n" + SLEEPS
    run = start(
        instance("work", SAYS.format("done")),
        instance("stubborn", stubborn, first_rank=1, sidecar=True),
        instance("polite", polite, first_rank=2, sidecar=True),
    )
    run.read_until("ready", rank=1)
    run.read_until("ready", rank=2)
    wait_until_work_ended(run)

    began = time.monotonic()
    run.launched.send({"type": RELEASE, "grace_seconds": 1.0})

    assert run.finish() == 0
    assert time.monotonic() - began >= 0.9
    codes = {each["role"]: each["exit_code"] for each in told(run, "instance_ended")}
    assert codes == {"work": 0, "polite": 5, "stubborn": 137}
    assert [each["rank"] for each in told(run, "rank_exit")] == [0]


def test_a_sidecar_that_fails_before_ends_the_job(start: Start) -> None:
    run = start(instance("work", SLEEPS), instance("helper", "raise SystemExit(3)", first_rank=1, sidecar=True))

    assert run.finish() == 3


@pytest.mark.parametrize("ends", [RELEASE, "stop"])
def test_the_first_node_stays_until_the_work_of_all_has_ended(start: Start, ends: str) -> None:
    gang = Gang(node_rank=0, nodes=2, local_ranks=1, address="127.0.0.1", port=29500, interface="")
    run = start(instance("work", SAYS.format("done")), gang=gang)
    wait_until_work_ended(run)
    assert run.launched.process.poll() is None

    run.launched.send({"type": ends, "grace_seconds": 1.0})

    assert run.finish() == (0 if ends == RELEASE else 143)


def test_a_program_that_does_not_exist_ends_all(start: Start) -> None:
    missing = replace(instance("b", "", first_rank=1, ranks=2, role_world_size=2, max_restarts=1), command=("no-such",))
    run = start(instance("a", SLEEPS), missing)

    assert run.finish() == 127
    assert "the rank can't be started" in run.log(1)
