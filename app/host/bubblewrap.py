"""Checks by trial whether bubblewrap can create a sandbox on this machine."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from app.domain.nodes.sandboxes import FORBIDDEN, MISSING, UNFILTERED, UNLOCKED
from app.host.system_calls import NoFilter, filter_file

TRIAL_SECONDS = 60  # it takes long where a thousand processes of a job compete for the processor
# The minimum that the sandbox of trainers needs; the further options of workers.sandbox.sandbox fail together with it.
LEAST = ("--unshare-user", "--unshare-pid", "--unshare-net", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev")


@dataclass(frozen=True, kw_only=True)
class Lack:
    """Why there is no sandbox: ``kind`` is a key of WHY_NONE, ``detail`` what the program said."""

    kind: str
    detail: str = ""

    def __str__(self) -> str:
        if self.kind == MISSING:
            return "bubblewrap is not installed"
        if self.kind in (UNFILTERED, UNLOCKED):
            return self.detail
        return f"bubblewrap may not create namespaces here: {self.detail or 'no output'}"


def lack_of_sandbox(arguments: Sequence[str] = LEAST) -> Lack | None:
    """Why bubblewrap can't start a program with these arguments; None if it can."""
    program = shutil.which("bwrap")
    if program is None:
        return Lack(kind=MISSING)
    environment = {"PATH": os.environ.get("PATH", os.defpath)}
    try:
        with filter_file() as file:
            trial = subprocess.run(
                [program, "--seccomp", str(file), *arguments, "--", "true"],
                env=environment,
                pass_fds=[file],
                capture_output=True,
                text=True,
                timeout=TRIAL_SECONDS,
                check=False,
            )
    except NoFilter as error:
        return Lack(kind=UNFILTERED, detail=str(error))
    except (OSError, subprocess.TimeoutExpired) as error:
        return Lack(kind=FORBIDDEN, detail=type(error).__name__)
    if trial.returncode == 0:
        return None
    return Lack(kind=FORBIDDEN, detail="".join(trial.stderr.strip().splitlines()[-1:])[:200])
