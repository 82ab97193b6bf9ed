"""Limits of attempts by control groups: those of this machine, and a directory that is laid out as version 2 is."""

import errno
import os
import subprocess
import sys

import pytest

from workers.sandbox.control_groups import CONTROLLERS, ControlGroup, GroupLimits, Hierarchies, find_hierarchies
from workers.sandbox.disk_rates import DiskRates, disks, rate_files

HERE = find_hierarchies()
needs_groups = pytest.mark.skipif(
    set(HERE.parents) != set(CONTROLLERS), reason="control groups can't be made here: run as root"
)

HOG = "import time\ndata = b'x' * (300 << 20)\nprint('had it', flush=True)"
BOMB = """
import os
made = 0
try:
    while made < 200:
        if not os.fork():
            os.closerange(0, 3)
            import time; time.sleep(60)
        made += 1
except OSError as error:
    print(made, type(error).__name__, flush=True)
"""
RATE, MOST = 2 << 20, 1 << 20  # half a second
# Past the page cache, as nothing else is sure to reach the disk.
MOVES = f"""
import mmap, os, time
path, data = PATH, mmap.mmap(-1, 1 << 18)
began, writing = time.monotonic(), os.open(path, os.O_CREAT | os.O_WRONLY | os.O_DIRECT)
for _ in range({MOST >> 18}):
    os.write(writing, data)
written, reading = time.monotonic(), os.open(path, os.O_RDONLY | os.O_DIRECT)
while os.readv(reading, [data]):
    pass
print(written - began, time.monotonic() - written)
"""
SPIN = "import time, sys\nend = time.monotonic() + 1.0\nwhile time.monotonic() < end: pass\nprint(time.process_time())"


@pytest.fixture
def group():
    made: list[ControlGroup] = []

    def make(**limits):
        made.append(HERE.make(f"test-{os.getpid()}-{len(made)}", GroupLimits(**limits)))
        return made[-1]

    yield make
    for each in made:
        assert each.remove()


def run(group: ControlGroup, code: str) -> subprocess.CompletedProcess[str]:
    join = "import os, sys\nfor path in sys.argv[1:]: open(path, 'w').write('0')\n"
    command = [sys.executable, "-c", join + code, *map(str, group.joined)]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


@needs_groups
@pytest.mark.skipif(HERE.disks is None, reason="control groups hold no rates of disks here")
def test_reading_and_writing_wait_at_their_rates(group, tmp_path):
    if os.major(tmp_path.stat().st_dev) == 0:
        pytest.skip("the files of tests lie on no disk")
    limited = group(disks=DiskRates(read_bytes=RATE, written_bytes=RATE))

    done = run(limited, f"PATH = {str(tmp_path / 'file')!r}\n{MOVES}")

    assert done.returncode == 0, done.stderr
    assert all(float(seconds) > 0.8 * MOST / RATE for seconds in done.stdout.split())


@needs_groups
def test_process_over_the_memory_limit_is_killed_and_counted(group):
    limited, free = group(memory_mb=100), group()

    assert run(limited, HOG).returncode == -9
    assert run(free, HOG).stdout == "had it\n"
    assert (limited.memory_kills, free.memory_kills) == (1, 0)


@needs_groups
def test_processes_are_limited_and_end_with_the_group(group):
    limited = group(processes=20)

    said = run(limited, BOMB)

    assert said.stdout == "19 BlockingIOError\n"
    assert limited.remove()
    assert not any(path.exists() for path in limited.directories.values())


@needs_groups
def test_cpu_time_is_limited(group):
    assert float(run(group(cpus=0.2), SPIN).stdout) < 0.5


@pytest.mark.skipif(HERE.cores is None, reason="groups that hold processes on cores can't be made here")
def test_process_can_not_leave_the_cores_of_its_group(group):
    core = min(os.sched_getaffinity(0))
    code = (
        "import os\nprint(sorted(os.sched_getaffinity(0)))\n"
        f"try: os.sched_setaffinity(0, {{{core}, {core + 1}}})\nexcept OSError: pass\n"
        "print(sorted(os.sched_getaffinity(0)))"
    )

    assert run(group(cores=(core,)), code).stdout == f"[{core}]\n" * 2
    assert run(group(), code).stdout.splitlines()[0] == str(sorted(os.sched_getaffinity(0)))


@needs_groups
def test_groups_of_ended_attempts_are_removed_by_a_later_one(group, monkeypatch):
    left = HERE.make(f"left-{os.getpid()}", GroupLimits())

    group()
    assert all(path.exists() for path in left.directories.values())  # its process may not have joined yet
    monkeypatch.setattr("workers.sandbox.control_groups._NEW_SECONDS", 0.0)
    group()

    assert not any(path.exists() for path in left.directories.values())


def test_limits_name_the_controllers_that_hold_them():
    assert GroupLimits().controllers == frozenset()
    assert GroupLimits(memory_mb=1, processes=1, cpus=0.5).controllers == set(CONTROLLERS)


@pytest.fixture
def version_2(tmp_path):
    """(proc, groups) of a process in a delegated scope, without the kernel behind the files."""
    proc, unit = tmp_path / "proc", tmp_path / "groups" / "system.slice" / "node.scope"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text("0::/system.slice/node.scope\n")
    unit.mkdir(parents=True)
    (tmp_path / "groups" / "cgroup.controllers").write_text("cpu memory pids\n")
    (unit / "cgroup.procs").write_text("11\n12\n")
    (unit / "cgroup.subtree_control").write_text("")
    return proc, tmp_path / "groups", unit


def test_unit_of_version_2_gives_its_controllers_to_groups_of_attempts(version_2):
    proc, groups, unit = version_2

    found = find_hierarchies(proc=proc, groups=groups)

    assert found == Hierarchies(dict.fromkeys(CONTROLLERS, unit / "trainyard"), 2)
    assert (unit / "trainyard-platform" / "cgroup.procs").read_text() == "12"  # the last one that was moved
    for directory in (unit, unit / "trainyard"):
        assert (directory / "cgroup.subtree_control").read_text() == "+memory +pids +cpu"


def test_service_of_systemd_stays_as_it_is_so_that_it_can_be_started_again(version_2):
    proc, groups, unit = version_2
    unit.rename(unit.with_suffix(".service"))
    (proc / "self" / "cgroup").write_text("0::/system.slice/node.service\n")

    found = find_hierarchies(proc=proc, groups=groups)

    assert found == Hierarchies(dict.fromkeys(CONTROLLERS, groups / "trainyard"), 2)
    assert (unit.with_suffix(".service") / "cgroup.subtree_control").read_text() == ""
    assert [path.name for path in unit.with_suffix(".service").iterdir() if path.is_dir()] == []
    assert not (groups / "trainyard-platform").exists(), "the root may have processes"
    assert (groups / "trainyard" / "cpu.weight").read_text() == "25"


def test_unit_that_may_holds_processes_on_cores(version_2):
    proc, groups, unit = version_2
    (unit / "cgroup.controllers").write_text("cpuset cpu memory pids\n")

    found = find_hierarchies(proc=proc, groups=groups)

    assert found == Hierarchies(dict.fromkeys(CONTROLLERS, unit / "trainyard"), 2, unit / "trainyard")
    assert (unit / "trainyard" / "cgroup.subtree_control").read_text() == "+cpuset"  # the last that was written
    assert (
        found.make("j.1.n", GroupLimits(cores=(0, 1, 3))).directories["cpuset"] / "cpuset.cpus"
    ).read_text() == "0-1,3"
    assert "cpuset" not in found.make("k.1.n", GroupLimits()).directories


def test_unit_that_may_holds_rates_of_disks(version_2, tmp_path, monkeypatch):
    proc, groups, unit = version_2
    (unit / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    for name, number in (("vda", "254:0"), ("loop0", "7:0"), ("dm-0", "253:0")):
        (tmp_path / "block" / name).mkdir(parents=True)
        (tmp_path / "block" / name / "dev").write_text(f"{number}\n")
    for name, hidden in (("nvme0c0n1", "0"), ("nvme0c1n1", "1")):  # the first has no number, as in current kernels
        (tmp_path / "block" / name).mkdir()
        (tmp_path / "block" / name / "hidden").write_text(f"{hidden}\n")
    (tmp_path / "block" / "nvme0c1n1" / "dev").write_text("259:1\n")
    assert disks(tmp_path / "block") == ["253:0", "254:0"]
    assert find_hierarchies(proc=proc, groups=groups).held_rates == (), "the kernel has no io.max"
    (unit / "trainyard" / "io.max").write_text("")
    monkeypatch.setattr("workers.sandbox.control_groups.disks", lambda: ["254:0"])

    found = find_hierarchies(proc=proc, groups=groups)
    group = found.make("j.1.n", GroupLimits(disks=DiskRates(written_bytes=5 << 20, reads=100)))

    assert found.held_rates == ("limits:reads", "limits:writes")
    assert (group.directories["io"] / "io.max").read_text() == "254:0 rbps=max wbps=5242880 riops=100 wiops=max"
    assert "io" not in found.make("k.1.n", GroupLimits()).directories


@pytest.mark.parametrize(("number", "starts"), [(errno.ENODEV, True), (errno.EINVAL, False)])
def test_disk_that_was_removed_is_not_limited_and_a_refused_group_is_removed(
    number, starts, version_2, tmp_path, monkeypatch
):
    proc, groups, unit = version_2
    (unit / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    find_hierarchies(proc=proc, groups=groups)
    (unit / "trainyard" / "io.max").write_text("")
    found = find_hierarchies(proc=proc, groups=groups)

    def refuse(path, text):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("workers.sandbox.control_groups.disks", lambda: ["254:0"])
    monkeypatch.setattr("workers.sandbox.control_groups._write", refuse)
    if starts:
        found.make("j.1.n", GroupLimits(disks=DiskRates(reads=100)))
    else:
        with pytest.raises(OSError, match="Invalid argument"):
            found.make("j.1.n", GroupLimits(disks=DiskRates(reads=100)))

    assert (unit / "trainyard" / "j.1.n").exists() == starts


def test_version_1_holds_reads_alone_of_what_is_written_back(tmp_path):
    own, blkio = tmp_path / "self", tmp_path / "groups" / "blkio"
    own.mkdir()
    (own / "cgroup").write_text("7:blkio:/\n")
    blkio.mkdir(parents=True)
    assert find_hierarchies(proc=tmp_path, groups=tmp_path / "groups").held_rates == ()

    (blkio / "blkio.throttle.read_bps_device").write_text("")
    found = find_hierarchies(proc=tmp_path, groups=tmp_path / "groups")

    assert (found.disks, found.held_rates) == (blkio / "trainyard", ("limits:reads",))
    rates = DiskRates(read_bytes=7, writes=3)
    assert list(rate_files(rates, 1, ["8:0"])) == [
        ("blkio.throttle.read_bps_device", "8:0 7"),
        ("blkio.throttle.write_iops_device", "8:0 3"),
    ]


def test_process_that_was_moved_finds_the_same_place(version_2):
    proc, groups, unit = version_2
    find_hierarchies(proc=proc, groups=groups)
    (proc / "self" / "cgroup").write_text("0::/system.slice/node.scope/trainyard-platform\n")

    assert find_hierarchies(proc=proc, groups=groups).parents["memory"] == unit / "trainyard"


def test_limits_of_version_2_are_files_of_one_directory(version_2):
    proc, groups, unit = version_2
    found = find_hierarchies(proc=proc, groups=groups)
    directory = unit / "trainyard" / "job"
    directory.mkdir()
    for name in ("memory.swap.max",):
        (directory / name).write_text("max")

    group = found.make("job", GroupLimits(memory_mb=10, processes=5, cpus=1.5))

    assert group.joined == (directory / "cgroup.procs",)
    written = {path.name: path.read_text() for path in directory.iterdir()}
    assert written == {
        "memory.max": str(10 << 20),
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "pids.max": "5",
        "cpu.max": "150000 100000",
    }
    (directory / "memory.events").write_text("low 0\noom 1\noom_kill 3\n")
    assert group.memory_kills == 3


def test_process_that_may_write_nowhere_has_no_groups(tmp_path):
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text("4:memory:/\n0::/\n")

    assert find_hierarchies(proc=tmp_path, groups=tmp_path / "none").parents == {}
