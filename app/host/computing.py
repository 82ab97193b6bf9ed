"""Runs a module that only computes, without a network, and without files but of its libraries.

`python -m app.host.computing MODULE`, for a program of ours that loads much of other people's code. It keeps its
standard input, output and error.
"""

import runpy
import site
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from app.host.bubblewrap import TRIAL_SECONDS
from app.host.landlock import READ, Right, restrict_files
from app.host.system_calls import NoFilter, offline_program, restrict

_OURS = Path(__file__).resolve().parents[2]
_PROGRAMS = ("/usr", "/lib", "/lib64", "/nix/store")
# What the loader, the C library, OpenSSL and linear algebra read of the machine. Of other processes nothing: root
# could read the environment of each.
_OF_THE_MACHINE = (
    *("/etc/ld.so.cache", "/etc/localtime", "/etc/ssl/openssl.cnf", "/etc/pki/tls/openssl.cnf", "/etc/crypto-policies"),
    *("/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/sys", "/sys/devices/system", "/dev/urandom"),
)
_TRIAL = """
import socket, sys
from app.host.computing import confine
confine()
try:
    socket.socket()
    print("network")
except OSError:
    pass
try:
    open(sys.argv[1])
    print("files")
except PermissionError:
    pass
"""


def confine() -> None:
    """Let this process, and all that it starts, open no socket and no file but of its libraries, as far as the machine
    can see to it: `missing_locks` says. One thread only.
    """
    program = None
    with suppress(NoFilter):
        program = offline_program()
    with suppress(OSError):
        restrict_files(_rules())
    if program is not None:
        with suppress(OSError):
            restrict(program)


def missing_locks() -> list[str]:
    """What a confined program reaches here all the same, found by trial: of `network` and `files`. Raises OSError, and
    SubprocessError where the trial fails.
    """
    with tempfile.NamedTemporaryFile() as file:
        command = [sys.executable, "-c", _TRIAL, file.name]
        environment = {"PYTHONPATH": str(_OURS), "PYTHONSAFEPATH": "1"}
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, text=True, timeout=TRIAL_SECONDS, check=True
        )
    return done.stdout.split()


def _rules() -> Iterator[tuple[Path, int]]:
    for path in (*_PROGRAMS, *_OF_THE_MACHINE, sys.prefix, sys.base_prefix, *_packages()):
        yield Path(path), READ
    yield _OURS / "app", READ
    # Python finds packages by listing the directory around them. Where ours is installed (`pip install --target`), its
    # libraries are beside it; a checkout has files beside ours that stay closed.
    yield _OURS, READ if any(_OURS.glob("trainyard-*.dist-info")) else Right.READ_DIRECTORY
    yield Path("/dev/null"), Right.READ_FILE | Right.WRITE_FILE


def _packages() -> Iterator[str]:
    """Directories of installed packages, of which ours may be one."""
    yield from (path for path in sys.path if path and Path(path).resolve() != _OURS)
    yield from site.getsitepackages()
    if site.ENABLE_USER_SITE:
        yield site.getusersitepackages()


def main() -> None:
    if len(sys.argv) == 1:
        sys.exit("name a module: python -m app.host.computing MODULE")
    module = sys.argv[1]
    sys.argv = sys.argv[1:]
    # Libraries ask for it when they are loaded, and Python would look for one that it can write to: there is none.
    tempfile.tempdir = "/tmp"  # noqa: S108 – nothing is written
    confine()
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
