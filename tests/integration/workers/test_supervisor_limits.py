"""Jobs that reach a limit of resource_config.limits under a supervisor: a real kernel holds it."""

import os
import resource
import subprocess
import sys
import threading

import pytest

from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.states import JobState
from app.host import processes
from tests.systems.roles import begin, role, submit
from tests.systems.system import wait_for
from workers.sandbox.control_groups import CONTROLLERS, GroupLimits, find_hierarchies, joining
from workers.sandbox.cores import take_cores

needs_groups = pytest.mark.skipif(
    set(find_hierarchies().parents) != set(CONTROLLERS), reason="control groups can't be made here: run as root"
)

EATS = """
eaten = []
while len(eaten) < 60:
    eaten.append(b"x" * 10_000_000)
print("ate", flush=True)
"""
FORKS = """
import os
made = 0
try:
    while made < 500:
        if not os.fork():
            os.closerange(0, 256)
            os.setsid()
            import time
            time.sleep(120)
        made += 1
except OSError as error:
    print("refused", type(error).__name__, made < 100, flush=True)
"""


def files_read_by(action):
    """What the action opens, on this thread."""
    found, me = set(), threading.get_ident()
    watching = True

    def hook(event, arguments):
        if watching and event == "open" and threading.get_ident() == me:
            found.add(str(arguments[0]))

    sys.addaudithook(hook)  # there is no way to remove one
    action()
    watching = False
    return found


def left(job_id):
    return [path for parent in find_hierarchies().parents.values() for path in parent.glob(f"{job_id}.*")]


@pytest.mark.long
@needs_groups
@pytest.mark.usefixtures("no_memory_kills")
def test_job_over_its_memory_limit_ends_with_the_limit_in_its_reason(world):
    job_id = world.start(EATS, resources={"limits": {"ram_mb": 300}})

    job = world.wait_for_end(job_id, 30)

    assert job.state is JobState.QUEUED, world.describe(job_id)
    attempt = world.attempt(job_id)
    assert attempt.cause == "HOST_OUT_OF_MEMORY", world.describe(job_id)
    assert "its memory limit of 300 MB (resource_config.limits.ram_mb, else" in attempt.end_reason
    assert "ate" not in world.log(job_id)
    world.wait(lambda: not left(job_id), 10, job_id)


@pytest.mark.long
@needs_groups
def test_fork_bomb_is_refused_processes_and_leaves_none(world):
    job_id = world.start(FORKS, resources={"limits": {"processes": 100}})

    job = world.wait_for_end(job_id)

    assert job.state is JobState.COMPLETED, world.describe(job_id)
    assert "refused BlockingIOError True" in world.log(job_id)
    assert world.processes(job_id) == []
    world.wait(lambda: not left(job_id), 10, job_id)


@needs_groups
def test_job_without_limits_has_the_nodes_limit_of_processes(make_world):
    world = make_world(TRAINYARD_NODE_MAX_PROCESSES="100")
    job_id = world.start(FORKS)

    world.wait_for_end(job_id)

    assert "refused BlockingIOError True" in world.log(job_id)


@pytest.mark.long
def test_job_that_keeps_too_many_files_is_ended_and_not_retried(world):
    script = "import time\nopen('file', 'wb').write(b'x' * (30 << 20))\nprint('written', flush=True)\ntime.sleep(60)\n"
    job_id = world.start(script, resources={"limits": {"storage_mb": 20}})

    job = world.wait_for_end(job_id)

    assert (job.state, job.error_type) == (JobState.FAILED, "DISK_LIMIT_EXCEEDED"), world.describe(job_id)
    assert "20 MB are allowed (resource_config.limits.storage_mb, else" in job.error_message
    assert world.log(job_id) == ["written"]


@needs_groups
def test_group_says_whose_a_process_is_whatever_its_environment_claims():
    group = find_hierarchies().make("job-hidden.2.n1", GroupLimits())
    claims = {"TRAINYARD_JOB_ID": "job-claimed", "TRAINYARD_ATTEMPT": "1", "PATH": os.environ["PATH"]}
    with subprocess.Popen(joining(group.joined, ["sleep", "60"]), env=claims) as child:
        try:
            wait_for(lambda: processes.processes_of_attempt("job-hidden", 2) == [child.pid], seconds=5, what="joined")
            assert processes.processes_of_attempt("job-hidden", 2, node="n1") == [child.pid]
            assert processes.processes_of_attempt("job-hidden", 2, node="n2") == []
            assert processes.processes_of_attempt("job-hidden", 1) == []
            assert processes.processes_of_attempt("job-claimed", 1) == []
        finally:
            child.kill()
    assert group.remove()


@needs_groups
def test_nothing_waits_for_the_processes_of_another_attempt():
    group = find_hierarchies().make("job-slow.1.n1", GroupLimits())
    with subprocess.Popen(joining(group.joined, ["sleep", "60"])) as child:
        try:
            wait_for(lambda: processes.processes_of_attempt("job-slow", 1), seconds=5, what="joined")
            read = files_read_by(
                lambda: processes.kill_attempt("job-other", 1) and processes.supervisors_of("job-o", 1)
            )
            assert f"/proc/{child.pid}/cgroup" in read
            assert not read & {f"/proc/{child.pid}/{name}" for name in ("environ", "cmdline")}
        finally:
            child.kill()
    assert group.remove()


def test_limits_of_each_process_hold_for_all_that_a_job_starts(world):
    script = (
        "import resource, subprocess\n"
        "for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_STACK, resource.RLIMIT_MEMLOCK, resource.RLIMIT_CORE):\n"
        "    print(resource.getrlimit(kind), flush=True)\n"
        "subprocess.run('ulimit -Hn; ulimit -n 4096; ulimit -n', shell=True)\n"
    )
    job_id = world.start(script, resources={"limits": {"open_files": 300, "stack_mb": 16, "locked_mb": 1}})

    world.wait_for_end(job_id)

    stack, locked = 16 << 20, 1 << 20
    limits = [f"({each}, {each})" for each in (300, stack, locked, 0)]
    lines = world.log(job_id)
    assert lines[:4] == limits, world.describe(job_id)
    assert "300" in lines[4:]
    assert "4096" not in lines[4:]


def test_job_that_needs_more_than_the_worker_may_have_says_so(world):
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    job_id = world.start("print('ran')\n", resources={"limits": {"open_files": most + 1}})

    world.wait(lambda: world.attempt(job_id).cause, 20, job_id)

    assert f"limits.open_files is {most + 1}, and this node may give {most}" in world.attempt(job_id).end_reason


@pytest.mark.long
def test_job_with_reserved_cores_stays_on_those_that_no_other_has(make_world):
    world = make_world(TRAINYARD_NODE_PIN_CORES="true")
    usable = sorted(os.sched_getaffinity(0))
    script = "import os\nprint(sorted(os.sched_getaffinity(0)), flush=True)\n"
    other = take_cores(world.settings.data.dir, 1, usable)

    jobs = []
    for cores in (1, len(usable), 0):
        jobs.append(world.start(script, resources={"cpu_cores": cores}))
        world.wait_for_end(jobs[-1])
    fitting, crowded, without = jobs

    own = [core for core in usable if core not in other.numbers][:1]
    assert [world.log(each) for each in jobs] == [[str(own)], [str(usable)], [str(usable)]]
    (has,) = cores_events(world, fitting)
    held = find_hierarchies().cores is not None
    assert has.data == {"cores": own, "wanted": 1, "held": held, "attempt": 1}
    (shares,) = cores_events(world, crowded)
    assert shares.message.startswith(f"no cores of its own: {len(usable)} of {len(usable)} were not free")
    assert cores_events(world, without) == []
    assert set(take_cores(world.settings.data.dir, len(own), own).numbers) == set(own)  # they are free again


@pytest.mark.long
def test_the_roles_of_a_job_share_the_cores_that_they_reserve(make_world):
    world = make_world(TRAINYARD_NODE_PIN_CORES="true")
    usable = sorted(os.sched_getaffinity(0))
    says = "import os\nprint(sorted(os.sched_getaffinity(0)), flush=True)\n"

    def ran(*cores):
        job_id = submit(world, [role(f"role-{n}", says, cores=each) for n, each in enumerate(cores)])
        begin(world, job_id)
        world.wait_for_end(job_id)
        return job_id

    alone, mixed, crowded = ran(1), ran(1, 0), ran(*[1] * len(usable))
    other = take_cores(world.settings.data.dir, 1, usable)
    late = ran(*[1] * len(usable))

    (has,) = cores_events(world, alone)
    assert (has.data["wanted"], [str(has.data["cores"])]) == (1, world.log(alone))
    assert cores_events(world, mixed) == []
    assert set(world.log(mixed)) == {str(usable)}
    assert [event.data["cores"] for event in cores_events(world, crowded)] == [usable]
    assert [(event.data["wanted"], event.data["cores"]) for event in cores_events(world, late)] == [(len(usable), [])]
    other.release()


def cores_events(world, job_id):
    return [event for event in world.events(job_id) if event.type == EventType.CORES]
