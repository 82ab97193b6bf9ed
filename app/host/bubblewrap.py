"""Whether bubblewrap can make a sandbox on this machine, found out by making one. Standard library only."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from app.domain.nodes.sandboxes import FORBIDDEN, MISSING

TRIAL_SECONDS = 10
# What the sandbox of trainers needs; workers.sandbox.sandbox asks for more, which fails together with this.
LEAST = ("--unshare-pid", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev")


@dataclass(frozen=True, kw_only=True)
class Lack:
    """``kind``: MISSING or FORBIDDEN; ``said``: what bubblewrap itself said."""

    kind: str
    said: str = ""

    def __str__(self) -> str:
        if self.kind == MISSING:
            return "bubblewrap is not installed"
        return f"bubblewrap may not make namespaces here: {self.said or 'no word'}"


def lack_of_sandbox(arguments: Sequence[str] = LEAST) -> Lack | None:
    """What keeps bubblewrap from starting a program with these arguments; None where it does start it."""
    program = shutil.which("bwrap")
    if program is None:
        return Lack(kind=MISSING)
    environment = {"PATH": os.environ.get("PATH", os.defpath)}
    try:
        trial = subprocess.run(
            [program, *arguments, "--", "true"], env=environment, capture_output=True, text=True,
            timeout=TRIAL_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return Lack(kind=FORBIDDEN, said=type(error).__name__)
    if trial.returncode == 0:
        return None
    return Lack(kind=FORBIDDEN, said="".join(trial.stderr.strip().splitlines()[-1:])[:200])
