"""Probes 21 to 31: ways to more permissions by programs, mounts, namespaces, control groups and devices."""

import contextlib
import functools
import os
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.sandbox.probes.probing import Blocked, Targets, probe, tried
from tests.sandbox.probes.system_calls import (
    CLONE_NEWCGROUP,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    MS_BIND,
    MS_PRIVATE,
    MS_REC,
    MS_REMOUNT,
    mount,
    unmount,
    unshare,
)

PROGRAMS = ("/usr/bin/su", "/bin/su")
GROUPS = Path("/sys/fs/cgroup")
DEVICES = (
    *("vda", "sda", "nvme0n1", "xvda", "mem", "port", "kmsg", "kvm", "fuse", "net/tun", "vsock", "vhost-net"),
    *("loop-control", "mapper/control", "uinput"),
)
# Which every sandbox has, over what lies there.
COVERED = ("/sys/firmware", "/sys/kernel/security", "/etc/ssl/private", "/proc/sys", "/proc/keys")


@probe(21, "gain permissions by a program with the setuid bit")
def setuid_programs(targets: Targets) -> str:
    program = next((path for path in PROGRAMS if Path(path).exists()), None)
    if program is None:
        raise Blocked("there is none")
    with subprocess.Popen(
        [program, "-c", "id -u"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        time.sleep(0.2)  # it waits for a password by now, as the user that it becomes
        users = _users_of(process.pid)
        said = process.communicate("\n", timeout=10)[0].strip()
    if said == "0" or (users and os.geteuid() != int(users[1])):
        return f"{program} as {users or said}"
    raise Blocked(f"{program} as {users}: {said[:60]}")


def _users_of(pid: int) -> list[str]:
    """Real, effective, saved and file system's."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return []
    return next((line.split()[1:] for line in lines if line.startswith("Uid:")), [])


@probe(22, "mount something")
def mounting(targets: Targets) -> str:
    place = _new_directory()
    return tried(
        {
            "tmpfs": lambda: _mounted("tmpfs", place, "tmpfs"),
            "a directory": lambda: _mounted(place, place, "none", MS_BIND),
            "/ again": lambda: mount("none", "/", "none", MS_REMOUNT | MS_BIND),
        }
    )


def _mounted(source: str, place: str, kind: str, flags: int = 0) -> str:
    mount(source, place, kind, flags)
    unmount(place)
    return "mounted"


def _new_directory() -> str:
    """Never removed here: what lies in it may be mounted there."""
    return tempfile.mkdtemp(dir=".")


@probe(23, "make a user namespace")
def user_namespace(targets: Targets) -> str:
    return _in_namespaces(0, lambda: None)


@probe(24, "mount a new /proc in a user namespace")
def proc_in_namespace(targets: Targets) -> str:
    place = _new_directory()
    return _in_namespaces(CLONE_NEWPID, lambda: mount("proc", place, "proc"))


@probe(25, "mount a new /sys in a user namespace")
def sys_in_namespace(targets: Targets) -> str:
    place = _new_directory()
    return _in_namespaces(CLONE_NEWNET, lambda: mount("sysfs", place, "sysfs"))


@probe(26, "mount control groups in a user namespace")
def groups_in_namespace(targets: Targets) -> str:
    place = _new_directory()
    return tried(
        {
            "version 2": lambda: _in_namespaces(CLONE_NEWCGROUP, lambda: mount("none", place, "cgroup2")),
            "version 1": lambda: _in_namespaces(CLONE_NEWCGROUP, lambda: mount("none", place, "cgroup", 0, "pids")),
        }
    )


@probe(27, "mount much memory or an overlay in a user namespace")
def memory_in_namespace(targets: Targets) -> str:
    lower, upper, work, place = (_new_directory() for _ in range(4))
    overlay = f"lowerdir={lower},upperdir={upper},workdir={work}"
    return tried(
        {
            "tmpfs": lambda: _in_namespaces(0, lambda: mount("none", place, "tmpfs", 0, "size=64g")),
            "overlay": lambda: _in_namespaces(0, lambda: mount("none", place, "overlay", 0, overlay)),
        }
    )


@probe(28, "uncover what something is mounted over")
def uncovering(targets: Targets) -> str:
    paths = [path for path in (*targets.covered, *COVERED) if Path(path).exists()]
    assert paths, "nothing is covered"
    attempts = {path: functools.partial(unmount, path) for path in paths}
    inside = {f"{path} in a namespace": functools.partial(_uncovered_inside, path) for path in paths}
    return tried({**attempts, **inside})


def _uncovered_inside(path: str) -> str:
    return _in_namespaces(0, functools.partial(unmount, path))


def _in_namespaces(flags: int, attack: Callable[[], None]) -> str:
    """Attack as root of a new user namespace, in a process that is in the other new ones, too. Raises OSError."""
    pid = os.fork()
    if not pid:
        os._exit(_number_of(lambda: _enter(flags)) or _in_child(attack))
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code:
        raise OSError(code, os.strerror(code))
    return "done"


def _enter(flags: int) -> None:
    uid, gid = os.getuid(), os.getgid()
    unshare(CLONE_NEWUSER | CLONE_NEWNS | flags)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
    Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
    mount("none", "/", "none", MS_REC | MS_PRIVATE)


def _in_child(attack: Callable[[], None]) -> int:
    """Only children are in a new PID namespace."""
    pid = os.fork()
    if not pid:
        os._exit(_number_of(attack))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _number_of(attack: Callable[[], None]) -> int:
    try:
        attack()
    except OSError as error:
        return error.errno or 1
    return 0


@probe(29, "change control groups in /sys")
def control_groups(targets: Targets) -> str:
    found = [*GROUPS.glob("*/release_agent"), *GROUPS.glob("*/cgroup.procs"), *GROUPS.glob("cgroup.*procs")]
    attempts = {str(path): functools.partial(_opened, path, os.O_WRONLY) for path in found}
    assert attempts, "there are no control groups"
    places = [GROUPS, *(path for path in GROUPS.iterdir() if path.is_dir())]
    return tried({**attempts, **{f"new group in {path}": functools.partial(_made, path / "probe") for path in places}})


def _made(directory: Path) -> str:
    directory.mkdir()
    directory.rmdir()
    return "made"


def _opened(path: Path, flags: int) -> str:
    os.close(os.open(path, flags | os.O_NONBLOCK))
    return "opened"


@probe(30, "make and open the disk's device file")
def device_files(targets: Targets) -> str:
    path = Path(_new_directory(), "disk")
    os.mknod(path, stat.S_IFBLK | 0o600, path.parent.stat().st_dev)
    with contextlib.suppress(OSError):  # a control group of devices may be around all
        return _opened(path, os.O_RDONLY)
    return "made"


@probe(31, "open device files of the machine")
def devices(targets: Targets) -> str:
    return tried({name: functools.partial(_opened, Path("/dev", name), os.O_RDONLY) for name in DEVICES})
