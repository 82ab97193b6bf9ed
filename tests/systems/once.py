"""What all processes of a test run share: the first one that needs it makes it, the others wait and find it."""

import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build" / "tests"
# What decides what the demo's model and data are.
_DEMO = ("examples/build_demo_assets.py", "examples/demo_data.py", "constraints.txt")


def once(directory: Path, make: Callable[[Path], object]) -> Path:
    """The directory, which `make` creates and fills; what it leaves when it fails is made anew by the next one."""
    made = directory.with_name(f"{directory.name}.made")
    with directory.with_name(f"{directory.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            shutil.rmtree(directory, ignore_errors=True)
            make(directory)
            made.touch()
    return directory


def build_demo(directory: Path) -> None:
    """The demo's model and data: a copy of what the first run of tests has built, as long as they would be the same."""
    decides = [sys.version.encode(), *((ROOT / name).read_bytes() for name in _DEMO)]
    KEPT.mkdir(parents=True, exist_ok=True)
    kept = once(KEPT / f"demo-{hashlib.sha256(b''.join(decides)).hexdigest()[:16]}", _build_demo)
    shutil.copytree(kept, directory)


def _build_demo(directory: Path) -> None:
    command = [sys.executable, "-m", "examples.build_demo_assets", "--out", str(directory)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
