"""Moves a process into a sandbox that bubblewrap has made, with no more permissions than a process started there has.

Bubblewrap makes the sandbox as always, with a shell that waits in it; see setns(2), capabilities(7) and
https://github.com/containers/bubblewrap for what it does to the processes it starts.
"""

import os
from pathlib import Path

from app.host.libc import checked, libc
from app.host.process_options import drop_capabilities, prctl

# The kinds of namespaces that bubblewrap may make, by their names in /proc/PID/ns: of linux/sched.h.
KINDS = {
    "user": 0x10000000,
    "mnt": 0x00020000,
    "cgroup": 0x02000000,
    "uts": 0x04000000,
    "ipc": 0x08000000,
    "pid": 0x20000000,
    "net": 0x40000000,
}
_PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 4, 24, 38
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_LAST_CAPABILITY = Path("/proc/sys/kernel/cap_last_cap")


def join(pid: int, descriptor: int) -> None:
    """Enter the namespaces of the process ``pid``, whose pidfd is ``descriptor``, that this process is not in.

    Its children will be in its PID namespace, not this process itself. One thread only. Raises OSError.
    """
    kinds = sum(flag for kind, flag in KINDS.items() if _namespace(str(pid), kind) != _namespace("self", kind))
    checked(libc().setns(descriptor, kinds), "setns")


def become(uid: int, gid: int) -> None:
    """This user of the sandbox that was joined, and with it the one of the machine that stands for it. Raises OSError.

    The capabilities in the sandbox remain, as its user 0 is not left.
    """
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def drop_permissions() -> None:
    """No capabilities, now and after any exec; readable by processes of this user, as if it was started there.

    Raises OSError.
    """
    last = int(_LAST_CAPABILITY.read_text())
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
    prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    for capability in range(last + 1):
        prctl(_PR_CAPBSET_DROP, capability)
    drop_capabilities()
    prctl(_PR_SET_DUMPABLE, 1)


def _namespace(process: str, kind: str) -> str:
    try:
        return str(Path(f"/proc/{process}/ns/{kind}").readlink())
    except FileNotFoundError:  # a kernel without this kind
        return ""
