"""What lies outside of the sandboxes for probes to find: files, a process and services of one user of the machine."""

import contextlib
import json
import os
import resource
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.systems.servers import free_port

ROOT = Path(__file__).parents[2]
# Directories that a system has for its operator's own things, by their names in Targets.files.
PLACES = {"opt": Path("/opt"), "mnt": Path("/mnt"), "tmp": Path("/tmp"), "home": Path.home()}
LIMITS: dict[str, Any] = {"ram_mb": 256, "cpu_cores": 0.25, "processes": 100, "storage_mb": 64, "shm_mb": 64}


@dataclass(frozen=True)
class Canaries:
    """Of ``user``, who is also the node worker's; ``places`` is the part of Targets that they are."""

    user: int
    folder: Path
    pid: int
    marker: str
    places: dict[str, Any]

    def targets(self, **platform: Any) -> dict[str, Any]:
        """All of Targets; ``platform`` is what only an installation has."""
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        return {
            "marker": self.marker,
            "pid": self.pid,
            "covered": [],
            "inodes": 50_000,
            "patience_seconds": 20.0,
            "open_files": limit,
            **LIMITS,
            **self.places,
            **platform,
        }


@contextmanager
def canaries(user: int, owned_pids: set[int]) -> Iterator[Canaries]:
    """Needs root."""
    marker = f"canary-secret-{secrets.token_hex(8)}"
    with contextlib.ExitStack() as stack:
        folders = {name: _folder(stack, place) for name, place in PLACES.items()}
        files = {name: str(_file(folder / "private", marker, user)) for name, folder in folders.items()}
        checkout = folders["mnt"] / "checkout"
        checkout.mkdir()
        (checkout / "train.py").write_text(marker)
        os.chown(folders["tmp"], user, user)
        places = {
            "files": files,
            "checkouts": [str(checkout), str(ROOT / "tests"), str(ROOT / "docs")],
            **_services(folders["tmp"]),
        }
        pid = stack.enter_context(_process(marker, user, places))
        owned_pids.add(pid)
        yield Canaries(user, folders["tmp"], pid, marker, places)


def _services(folder: Path) -> dict[str, Any]:
    name = f"trainyard-canary-{secrets.token_hex(8)}"
    return {
        "service_port": free_port(),
        "resolver_port": free_port(),
        "abstract_socket": name,
        "path_socket": str(folder / "service.sock"),
        "key_name": name,
        "shared_memory_key": secrets.randbelow(1 << 30) + 1,
        "shared_memory_file": f"/dev/shm/{name}",
        "queue": name,
    }


def _folder(stack: contextlib.ExitStack, place: Path) -> Path:
    place.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".trainyard-canary-", dir=place))
    stack.callback(shutil.rmtree, folder)
    folder.chmod(0o755)
    return folder


def _file(path: Path, text: str, user: int) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    os.chown(path, user, user)
    return path


@contextmanager
def _process(marker: str, user: int, places: dict[str, Any]) -> Iterator[int]:
    command = [
        sys.executable,
        str(Path(__file__).with_name("canary_process.py")),
        marker,
        str(user),
        json.dumps(places),
    ]
    environment = {**os.environ, "CANARY": marker, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process.pid
        finally:
            process.terminate()
