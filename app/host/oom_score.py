"""Which processes the kernel ends first when the whole machine has no memory left: those of jobs; see proc(5).

A process that may (CAP_SYS_RESOURCE) sets with its own score the least that it and all that it starts can go back to.
So the score is raised before a sandbox takes its capabilities away. Where the kernel holds no score, /proc of a
sandbox is read-only.
"""

import contextlib
from pathlib import Path

OF_SANDBOXES = 500  # as if each process used half of the machine's memory in addition
OF_RANKS = 100  # in addition: before the process that tells the supervisor of their end
_MOST = 1000
_CAP_SYS_RESOURCE = 24  # of linux/capability.h
_FILE = Path("/proc/self/oom_score_adj")
_NAMESPACE = Path("/proc/self/ns/user")
_OF_MACHINE = Path("user:[4026531837]")  # PROC_USER_INIT_INO of linux/proc_ns.h
# The same for a shell that is to be replaced by a sandbox.
RAISED_BY_SHELL = (
    f"read score < {_FILE} && score=$((score + {OF_SANDBOXES})) && [ $score -gt {_MOST} ] && score={_MOST}; "
    f"echo $score 2> /dev/null > {_FILE}; "
)


def holds_scores() -> bool:
    """Whether no process can go back below the score that this one, or a child of it, has set.

    The capability counts where the machine gives it alone: in a container with a user namespace it is worth nothing.
    """
    if _NAMESPACE.readlink() != _OF_MACHINE:
        return False
    lines = Path("/proc/self/status").read_text().splitlines()
    effective = next((line.split()[1] for line in lines if line.startswith("CapEff:")), "0")
    return bool(int(effective, 16) & 1 << _CAP_SYS_RESOURCE)


def raise_oom_score(by: int) -> None:
    with contextlib.suppress(OSError):  # where /proc is read-only, the kernel decides by size among what has one score
        _FILE.write_text(str(min(_MOST, int(_FILE.read_text()) + by)))
