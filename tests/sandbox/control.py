"""The probes as a plain process of root, without any sandbox: what they reach there proves that they can reach it."""

import fcntl
import json
import os
import pty
import shutil
import subprocess
import sys
import termios
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.sandbox.canaries import ROOT

# Mounts of the probes stay among themselves; a secret is covered, for the one that uncovers.
_OWN_MOUNTS = ("unshare", "--mount", "--propagation", "private", "sh", "-c")
# As an agent does before a rank, whose score can be lowered again.
_COVER = 'mount -t tmpfs none "$1" && echo 500 > /proc/self/oom_score_adj && shift && "$@"; exit $?'
SECONDS = 100
# What a busy machine has in a short time, and what its own limits allow.
SMALL = {"cpu_cores": 0.05, "open_files": 1000, "inodes": 2000, "patience_seconds": 0.0}

Report = dict[int, dict[str, Any]]


def copy_probes(folder: Path, targets: dict[str, Any]) -> Path:
    """The script in a directory of its own, as a user would have it; what it attacks lies beside it."""
    source = ROOT / "tests" / "sandbox" / "probes"
    shutil.copytree(source, folder / "tests/sandbox/probes", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(source / "attack.py", folder)
    (folder / "targets.json").write_text(json.dumps(targets))
    return folder / "attack.py"


def report_of(lines: Sequence[str]) -> Report:
    """What each probe said, by its number."""
    said = (json.loads(line) for line in lines if line.startswith('{"probe"'))
    return {each["probe"]: each for each in said}


def without_sandbox(folder: Path, targets: dict[str, Any], numbers: str, secrets: dict[str, str]) -> Report:
    """In mount namespaces of their own, with a terminal, and with secrets in the environment and in an open file."""
    covered, run_dir = folder / "covered", folder / "run"
    for path in (covered, run_dir):
        path.mkdir(parents=True)
    (run_dir / "spec.json").write_text("{}")
    (run_dir / "supervisor.json").write_text("{}")
    script = copy_probes(folder / "code", {**targets, **SMALL, "covered": [str(covered)]})
    command = [*_OWN_MOUNTS, _COVER, "sh", str(covered), sys.executable, str(script), numbers]
    with Path(targets["data_dir"], "admin.key").open() as secret:
        return report_of(_run(command, run_dir, {**secrets, "TRAINYARD_RUN_DIR": str(run_dir)}, secret.fileno()))


def on_reached_network(folder: Path, targets: dict[str, Any], numbers: str) -> Report:
    """In a network of their own, in which the addresses of the internet are."""
    script = copy_probes(folder / "code", targets)
    program = str(Path(__file__).with_name("reached_network.py"))
    environment = {"TRAINYARD_RUN_DIR": str(folder), "PYTHONPATH": str(ROOT)}
    return report_of(_run(["unshare", "--net", sys.executable, program, str(script), numbers], folder, environment))


def _run(command: Sequence[str], directory: Path, environment: dict[str, str], *files: int) -> list[str]:
    ours, theirs = pty.openpty()
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    try:
        done = subprocess.run(
            command,
            env={**inherited, **environment},
            cwd=directory,
            stdin=theirs,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            start_new_session=True,
            pass_fds=files,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            check=False,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
