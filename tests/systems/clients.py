"""Environments for clients whose libraries don't fit beside ours: made once of pinned versions, and kept."""

import hashlib
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.systems.once import KEPT, once

CLIENTS = Path(__file__).parents[1] / "clients"
# Of pip and npm where no registry of packages can be reached.
_UNREACHABLE = (
    "NewConnectionError",
    "ConnectTimeoutError",
    "NameResolutionError",
    "ProxyError",
    "EAI_AGAIN",
    "ECONNREFUSED",
    "ENETUNREACH",
    "ENOTFOUND",
    "ETIMEDOUT",
)


def python_with(name: str) -> Path:
    """The interpreter of an environment with exactly `tests/clients/requirements/NAME.txt`."""
    requirements = CLIENTS / "requirements" / f"{name}.txt"
    folder = once(_kept(name, sys.version.encode(), requirements.read_bytes()), partial(make_environment, name=name))
    return folder / "bin" / "python"


def make_environment(folder: Path, *, name: str) -> Path:
    """The interpreter of a new one."""
    _installed([sys.executable, "-m", "venv", str(folder)], CLIENTS)
    python = folder / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1"]
    _installed([*pip, "--requirement", str(CLIENTS / "requirements" / f"{name}.txt")], CLIENTS)
    return python


def wheels_of(name: str) -> Path:
    """A folder with the wheels of exactly `tests/clients/requirements/NAME.txt`, for an index of packages."""
    requirements = CLIENTS / "requirements" / f"{name}.txt"
    return once(_kept(f"{name}-wheels", sys.version.encode(), requirements.read_bytes()), partial(_download, name=name))


def _download(folder: Path, *, name: str) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--retries", "1"]
    command += ["--only-binary", ":all:", "--no-deps", "--dest", str(folder)]
    _installed([*command, "--requirement", str(CLIENTS / "requirements" / f"{name}.txt")], CLIENTS)


def node_packages() -> Path:
    """`node_modules` of `tests/clients/node/package-lock.json`, with a Node that is recent enough."""
    if shutil.which("npm") is None:
        pytest.skip("needs npm, which scripts/install-system-packages installs on Debian")
    lock = (CLIENTS / "node" / "package-lock.json").read_bytes()
    return once(_kept("node", lock), _install_node_packages) / "node_modules"


def _install_node_packages(folder: Path) -> None:
    shutil.copytree(CLIENTS / "node", folder)
    _installed(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1"], folder)


def _kept(name: str, *decides: bytes) -> Path:
    KEPT.mkdir(parents=True, exist_ok=True)
    return KEPT / f"client-{name}-{hashlib.sha256(b''.join(decides)).hexdigest()[:16]}"


def _installed(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode != 0 and any(sign in done.stderr for sign in _UNREACHABLE):
        pytest.skip(f"no registry of packages can be reached from here, and none are kept in {KEPT}")
    assert done.returncode == 0, done.stdout + done.stderr
