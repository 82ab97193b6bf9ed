"""Inside the virtual machine: limits of attempts on a kernel with control groups of version 2 alone.

The node worker is in a service of systemd, as far as groups show one. It must be possible to start that again while an
attempt runs, and the attempt's limits must bind.
"""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

from workers.sandbox.control_groups import CONTROLLERS, GROUPS, ControlGroup, GroupLimits, find_hierarchies

SERVICE = GROUPS / "system.slice" / "trainyard-node@n.service"
JOIN = "import sys\nfor path in sys.argv[1:]: open(path, 'w').write('0')\n"
HOG = "data = b'x' * (300 << 20)\nprint('had it')"
BOMB = """
import os, time
made = 0
try:
    while made < 100:
        if not os.fork():
            os.closerange(0, 3)
            time.sleep(60)
        made += 1
except OSError as error:
    print(made, flush=True)
"""


def main() -> None:
    SERVICE.mkdir(parents=True)
    (SERVICE / "cgroup.procs").write_text(str(os.getpid()))
    found = find_hierarchies()
    say("groups", f"of {sorted(found.parents)} below {found.parents.get('memory')}")
    limited = found.make("job-a.1.n", GroupLimits(memory_mb=100, processes=20, cpus=0.5))
    hog, bomb = run(limited, HOG), run(limited, BOMB)
    results = {
        "controllers": (sorted(found.parents), sorted(CONTROLLERS)),
        "memory": ((hog.returncode, hog.stdout, limited.memory_kills > 0), (-signal.SIGKILL, "", True)),
        "processes": (bomb.stdout, "19\n"),
        "processor": ((limited.directories["cpu"] / "cpu.max").read_text(), "50000 100000\n"),
        "rates of disks": (found.held_rates, ("limits:reads", "limits:writes")),
        "started again": (joins(SERVICE), True),
        "old layout is refused": (is_refused_where_the_service_itself_has_children(), True),
        "removed": (limited.remove(), True),
    }
    for what, (is_so, should_be) in results.items():
        say(what, "as expected" if is_so == should_be else f"{is_so!r} in place of {should_be!r}")
    passed = all(is_so == should_be for is_so, should_be in results.values())
    say("verdict on limits", "passed" if passed else "failed")


def run(group: ControlGroup, code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-S", "-c", JOIN + code, *map(str, group.joined)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def joins(group: Path) -> bool:
    """As a process that systemd starts in it."""
    command = [sys.executable, "-S", "-c", JOIN, str(group / "cgroup.procs")]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def is_refused_where_the_service_itself_has_children() -> bool:
    """Why attempts are not below it."""
    other = SERVICE.with_name("other.service")
    (other / "attempts").mkdir(parents=True)
    for name in CONTROLLERS:
        for directory in (GROUPS, other.parent, other):
            (directory / "cgroup.subtree_control").write_text(f"+{name}")
    try:
        (other / "cgroup.procs").write_text(str(os.getpid()))
    except OSError as error:
        return error.errno == errno.EBUSY
    return False


def say(what: str, text: str) -> None:
    print(f"{what}: {text}", flush=True)  # noqa: T201 – to the console, where the script reads it


if __name__ == "__main__":
    main()
