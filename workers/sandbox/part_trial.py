"""Whether attempts of this node can mount parts of volume claims: found out by doing it, once for each node worker."""

import subprocess
import tempfile
from functools import cache
from pathlib import Path

from workers.sandbox.sandbox import Bubblewrap
from workers.sandbox.spec import FilesystemView, PlacedPath, SandboxSpec

_SECONDS = 20.0
_TARGET, _TEXT = Path("/part"), "of the claim"


@cache
def lack_of_claim_parts(data_dir: Path) -> str:
    """Why a sandbox shows no part of a claim to a job of the worker's user; empty where it does.

    With a user of its own an attempt mounts parts as it mounts everything, which is tried with that user.
    """
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=data_dir) as folder:
            return _tried(Path(folder).resolve())
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)


def _tried(folder: Path) -> str:
    claim, run_dir = folder / "claim", folder / "run"
    part = claim / "part"
    for directory in (part, run_dir):
        directory.mkdir(parents=True)
    (part / "file").write_text(_TEXT)
    placed = PlacedPath(target=_TARGET, source=part)
    view = FilesystemView(run_dir=run_dir, data_dir=folder / "data", claims=(claim,), placements=(placed,))
    with Bubblewrap().enclosed(["cat", str(_TARGET / "file")], SandboxSpec(view=view)) as enclosed:
        done = subprocess.run(
            enclosed.command,
            pass_fds=enclosed.files,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    if done.stdout == _TEXT:
        return ""
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
