"""Probes 1 to 20: files of the machine, of the platform and of other jobs."""

import ctypes
import functools
import os
import struct
import sys
import tempfile
from pathlib import Path

from tests.sandbox.probes.probing import Blocked, Targets, probe, tried
from tests.sandbox.probes.system_calls import checked, libc

AT_FDCWD = -100
_HANDLE_BYTES = 128
PLANTED = ".trainyard-planted"


def read(path: str | Path) -> str:
    """How much of a file can be read. Raises OSError."""
    with Path(path).open("rb") as file:
        return f"{len(file.read(64))} bytes"


def listed(path: str, *, beyond: frozenset[str] = frozenset()) -> str:
    """The entries of a directory that a job need not know."""
    found = sorted(set(os.listdir(path)) - beyond)  # noqa: PTH208
    if not found:
        raise Blocked(f"nothing but {sorted(beyond)}")
    return f"{len(found)} entries, such as {found[0]}"


@probe(1, "read /etc/shadow")
def shadow(targets: Targets) -> str:
    return read("/etc/shadow")


@probe(2, "read admin.key")
def administrator_key(targets: Targets) -> str:
    return read(Path(targets.data_dir, "admin.key"))


@probe(3, "read secret.key")
def secret_key(targets: Targets) -> str:
    return read(Path(targets.data_dir, "secret.key"))


@probe(4, "read the database file")
def database(targets: Targets) -> str:
    return read(targets.database)


@probe(5, "read broker.url and redis.conf")
def broker_passwords(targets: Targets) -> str:
    paths = [Path(targets.data_dir, name) for name in ("broker.url", "redis/redis.conf")]
    return tried({path.name: functools.partial(read, path) for path in paths})


@probe(6, "list the data directory")
def data_directory(targets: Targets) -> str:
    return listed(targets.data_dir, beyond=frozenset({"run"}))


@probe(7, "list run directories of other jobs")
def run_directories(targets: Targets) -> str:
    own = os.environ.get("TRAINYARD_JOB_ID", "")
    return listed(str(Path(targets.data_dir, "run", "jobs")), beyond=frozenset({own}))


@probe(8, "read the run directory of a running job")
def other_run_directory(targets: Targets) -> str:
    return listed(targets.other_run_dir)


@probe(9, "read a stored result of another project")
def other_result(targets: Targets) -> str:
    return read(targets.other_artifact)


@probe(10, "read a volume claim of another project")
def other_claim(targets: Targets) -> str:
    return read(targets.claim)


@probe(11, "read root's home directory")
def home(targets: Targets) -> str:
    return read(targets.files["home"])


@probe(12, "read the machine's /tmp")
def temporary_files(targets: Targets) -> str:
    path = Path(targets.files["tmp"])
    return tried({"file": lambda: read(path), "name": lambda: _named(path)})


def _named(path: Path) -> str:
    if path.name not in os.listdir(path.parent):  # noqa: PTH208
        raise Blocked("it is not listed")
    return "its name"


@probe(13, "read a private file in /opt")
def software(targets: Targets) -> str:
    return read(targets.files["opt"])


@probe(14, "read a private file in /mnt")
def mounted_data(targets: Targets) -> str:
    return read(targets.files["mnt"])


@probe(15, "list other checkouts of code")
def checkouts(targets: Targets) -> str:
    return tried({path: functools.partial(listed, path) for path in targets.checkouts})


@probe(16, "write to /usr, /etc, /opt, /var and /")
def system_directories(targets: Targets) -> str:
    return tried({path: functools.partial(_planted, Path(path)) for path in ("/usr", "/etc", "/opt", "/var", "/")})


def _planted(directory: Path) -> str:
    path = directory / PLANTED
    path.touch(exist_ok=False)
    path.unlink()
    return "a new file"


@probe(17, "write into the job's own code directory")
def own_code(targets: Targets) -> str:
    return _planted(Path(sys.argv[0]).parent)


@probe(18, "change spec.json and supervisor.json")
def own_specification(targets: Targets) -> str:
    found = [Path(os.environ["TRAINYARD_RUN_DIR"], name) for name in ("spec.json", "supervisor.json")]
    present = [path for path in found if path.exists()]
    assert present, "there is nothing to change"
    return tried(
        {f"write {path.name}": functools.partial(_opened_for_writing, path) for path in present}
        | {f"rename {path.name}": functools.partial(_renamed, path) for path in present}
    )


def _opened_for_writing(path: Path) -> str:
    os.close(os.open(path, os.O_WRONLY))
    return "opened"


def _renamed(path: Path) -> str:
    away = path.rename(path.with_suffix(".away"))
    away.rename(path)
    return "renamed, and back"


@probe(19, "make a hard link to a file outside")
def hard_link(targets: Targets) -> str:
    outside = [targets.files["tmp"], "/usr/bin/env", sys.executable, "/bin/busybox"]
    return tried({path: functools.partial(_linked, Path(path)) for path in outside if path})


def _linked(path: Path) -> str:
    with tempfile.TemporaryDirectory(dir=".") as directory:
        Path(directory, "link").hardlink_to(path.resolve())
    return "a link"


@probe(20, "open files by handle")
def handles(targets: Targets) -> str:
    # The root directory of most file systems has this inode, of which nothing has to be known.
    guessed = struct.pack("=IiII", 8, 1, 2, 0)
    return tried(
        {"of a path": lambda: _opened_by_handle(_handle_of("/")), "guessed": lambda: _opened_by_handle(guessed)}
    )


def _handle_of(path: str) -> bytes:
    handle = ctypes.create_string_buffer(struct.pack("=Ii", _HANDLE_BYTES, 0), 8 + _HANDLE_BYTES)
    checked(libc.name_to_handle_at(AT_FDCWD, path.encode(), handle, ctypes.byref(ctypes.c_int()), 0))
    return handle.raw


def _opened_by_handle(handle: bytes) -> str:
    directory = os.open(".", os.O_RDONLY)
    os.close(checked(libc.open_by_handle_at(directory, ctypes.create_string_buffer(handle), os.O_RDONLY)))
    return "a descriptor"
