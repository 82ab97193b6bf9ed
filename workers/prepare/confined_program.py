"""What programs that inspect users' files in a sandbox have in common: their environment, and their end."""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

from workers.sandbox.launcher import inherited_environment, user_environment
from workers.sandbox.sandbox import Sandbox
from workers.sandbox.spec import Account, FilesystemView


def environment(view: FilesystemView, sandbox: Sandbox) -> dict[str, str]:
    work = view.run_dir / "work"
    return {
        **inherited_environment(),
        **user_environment(sandbox.kind, Account()),
        "HOME": str(work),
        "HF_HOME": str(work / "huggingface"),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONSAFEPATH": "1",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill the program with its process group: without bubblewrap, children may be left in its session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
