"""Words of interactive sessions: their kinds, what a project allows, what runs in them, and names of hosts for SSH."""

import re
from collections.abc import Sequence

EXEC, SHELL, PORT_FORWARD = "exec", "shell", "port_forward"
KINDS = (EXEC, SHELL, PORT_FORWARD)
ALLOWED, RECORDED, OFF = "allowed", "recorded", "off"  # Project.sessions
SWITCHES = (ALLOWED, RECORDED, OFF)

# How ssh-proxy runs the words of `ssh JOB …`: by the user's shell, as sshd does, or by sh without a variable for it.
OF_SSH = ("/bin/sh", "-c", 'exec "${SHELL:-/bin/sh}" -c "$1"', "sh")

# Of names of hosts for SSH, as they stand in a user's ~/.ssh/config.
SSH_SUFFIX = ".trainyard"
SSH_RANK = "rank"
_SSH_PLACE = re.compile(r"([a-z0-9-]{1,30})-([0-9]{1,6})\.(.+)")


def ssh_host(job_id: str, place: str = "") -> str:
    """The host of a place in a job: ROLE-INDEX of a job with roles, rank-N of others; of none: the first rank's."""
    return f"{place}.{job_id}{SSH_SUFFIX}" if place else f"{job_id}{SSH_SUFFIX}"


def split_ssh_host(host: str) -> tuple[str, int, str] | None:
    """ROLE or `rank`, the number, and what names the job; None for a name without a place."""
    found = _SSH_PLACE.fullmatch(host)
    return (found[1], int(found[2]), found[3]) if found is not None else None


def what_runs(command: Sequence[str]) -> str:
    """For people who read lists of sessions: without the shell around a command that came by SSH."""
    is_of_ssh = len(command) == len(OF_SSH) + 1 and tuple(command[:-1]) == OF_SSH
    return command[-1] if is_of_ssh else " ".join(command)
