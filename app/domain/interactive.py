"""Words of interactive sessions: their kinds, what a project allows, and what runs in them."""

from collections.abc import Sequence

EXEC, SHELL, PORT_FORWARD = "exec", "shell", "port_forward"
KINDS = (EXEC, SHELL, PORT_FORWARD)
ALLOWED, RECORDED, OFF = "allowed", "recorded", "off"  # Project.sessions
SWITCHES = (ALLOWED, RECORDED, OFF)

# How ssh-proxy runs the words of `ssh JOB …`: by the user's shell, as sshd does, or by sh without a variable for it.
OF_SSH = ("/bin/sh", "-c", 'exec "${SHELL:-/bin/sh}" -c "$1"', "sh")


def what_runs(command: Sequence[str]) -> str:
    """For people who read lists of sessions: without the shell around a command that came by SSH."""
    is_of_ssh = len(command) == len(OF_SSH) + 1 and tuple(command[:-1]) == OF_SSH
    return command[-1] if is_of_ssh else " ".join(command)
