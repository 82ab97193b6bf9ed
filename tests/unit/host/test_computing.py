"""A program that only computes reaches no network, no other process, and no file but of its libraries."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from app.host.computing import missing_locks
from app.host.landlock import LEAST_VERSION, version

ROOT = Path(__file__).parents[3]
COMMAND = (sys.executable, "-m", "app.host.computing")


def ran(statement: str, *, at: Path = ROOT) -> "subprocess.CompletedProcess[str]":
    """A module of Python that runs it, confined."""
    command = [*COMMAND, "timeit", "-n", "1", "-r", "1", statement]
    environment = {"PYTHONPATH": str(at), "PYTHONSAFEPATH": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_connection_of_a_confined_program_fails() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        attempt = f"import socket; socket.create_connection(('127.0.0.1', {address[1]}))"
        free = subprocess.run([sys.executable, "-c", attempt], capture_output=True, timeout=60, check=False)

        confined = ran(attempt)

        listener.setblocking(False)
        listener.accept()[0].close()
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert (free.returncode, confined.returncode) == (0, 1)
    assert "PermissionError" in confined.stderr


@pytest.mark.parametrize("attempt", ["socket.socket(socket.AF_UNIX)", "socket.socketpair()"])
def test_confined_program_opens_no_socket_of_the_machine_either(attempt: str) -> None:
    confined = ran(f"import socket; {attempt}")

    assert confined.returncode == 1
    assert "PermissionError" in confined.stderr


def test_module_to_run_is_named() -> None:
    done = subprocess.run(COMMAND, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stderr) == (1, "name a module: python -m app.host.computing MODULE\n")


@pytest.mark.long
@pytest.mark.skipif(version() < LEAST_VERSION, reason="this kernel has no such Landlock")
def test_libraries_beside_an_installed_package_are_read_under_any_name_of_their_directory(tmp_path: Path) -> None:
    target, name = tmp_path / "target", tmp_path / "name"
    shutil.copytree(ROOT / "app", target / "app", ignore=shutil.ignore_patterns("static", "__pycache__"))
    (target / "library.py").write_text("")
    name.symlink_to(target)

    checkout = ran("import library", at=name)
    (target / "trainyard-1.0.dist-info").mkdir()
    installed = ran("import library", at=name)

    assert (checkout.returncode, installed.returncode) == (1, 0)
    assert "library" in checkout.stderr


@pytest.mark.skipif(version() < LEAST_VERSION, reason="this kernel has no such Landlock")
def test_a_confined_program_reads_its_libraries_alone(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of the platform's user")
    others = (tmp_path / "secret", ROOT / "pyproject.toml", f"/proc/{os.getpid()}/environ")
    tried = "; ".join(f"kept_out(open, {str(path)!r})" for path in others)
    statement = (
        "import json, numpy\ndef kept_out(call, *given):\n try:\n  call(*given)\n except PermissionError:\n  return\n"
        f" raise SystemExit(f'{{given}} is open')\n{tried}; kept_out(open, {str(tmp_path / 'new')!r}, 'w')"
    )

    found = ran(statement)

    assert (found.returncode, found.stderr) == (0, "")
    assert missing_locks() == []
