"""Installations whose node workers have more or fewer permissions, and the jobs that try the probes on them."""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.host.bubblewrap import LEAST
from tests.sandbox.canaries import ROOT, Canaries
from tests.systems import images
from tests.systems.installations import with_inputs
from tests.systems.system import System, wait_for
from workers.sandbox.node_python import python_command

CLAIM = "files/pvc/blue/claim/private.txt"


class Machine(System):
    """Its processes run as ``user``; a node of root may limit what jobs use."""

    def __init__(self, folder: Path, user: int, **settings: str) -> None:
        super().__init__(folder, **settings)
        self.user = user

    def start_api(self) -> None:
        give_to(self.folder, self.user)
        super().start_api()

    def command_of(self, process: str) -> list[str]:
        command = super().command_of(process)
        return command if self.user == 0 else [*as_user(self.user, self.folder), *command]

    @property
    def claim(self) -> Path:
        return self.data_dir / CLAIM

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, "HOME": str(self.folder), "CANARY_PASSWORD": "canary-secret-of-the-platform"}


def give_to(directory: Path, user: int) -> None:
    for path in (directory, *directory.rglob("*")):
        os.chown(path, user, user, follow_symlinks=False)


# Shows directories that only root may enter, with nothing in them but what comes last.
_SHOW = """
hidden=$1 user=$2 stage=$3; shift 3
number=0
for path; do
    [ "$path" = -- ] && break
    number=$((number + 1)); mkdir -p "$stage/$number"; mount --rbind "$path" "$stage/$number" || exit
done
[ -z "$hidden" ] || mount -t tmpfs -o mode=755 none "$hidden" || exit
number=0
while [ "$1" != -- ]; do
    number=$((number + 1)); mkdir -p "$1"; mount --rbind "$stage/$number" "$1" || exit; shift
done
shift
exec setpriv --reuid "$user" --regid "$user" --clear-groups -- "$@"
"""


def as_user(user: int, folder: Path) -> list[str]:
    """A command to which another is added, which an ordinary user runs, also where the interpreter is root's own."""
    needed = [Path(sys.base_prefix).resolve(), Path(sys.prefix).resolve(), ROOT]
    hidden = {top for path in needed if (top := closed_directory(path)) is not None}
    assert len(hidden) <= 1, hidden
    inside = [str(path) for path in needed for top in hidden if path.is_relative_to(top)]
    closed = str(next(iter(hidden), ""))
    return ["unshare", "--mount", "sh", "-c", _SHOW, "sh", closed, str(user), str(folder / "stage"), *inside, "--"]


def namespaces_lack(user: int) -> str:
    """Why bubblewrap makes no sandbox for this user; empty if it does."""
    command = ["setpriv", "--reuid", str(user), "--regid", str(user), "--clear-groups", "--", "bwrap", *LEAST, "true"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    return done.stderr.strip() if done.returncode else ""


def closed_directory(path: Path) -> Path | None:
    """The first directory on the way that not everyone may enter."""
    return next((each for each in reversed([path, *path.parents]) if not each.stat().st_mode & 0o001), None)


def make_image(layout: Path) -> str:
    """The reference of an image with a `python3`, which is the node's interpreter."""
    program = f'#!/bin/sh\nexec {shlex.join(python_command())} "$@"\n'
    images.make_image(layout, [("usr", None), ("usr/bin", None), ("usr/bin/python3", program.encode()), ("etc", None)])
    return f"oci:{layout}:v1"


@contextmanager
def running(canaries: Canaries, owned_pids: set[int], **settings: str) -> Iterator[Machine]:
    """With a node, and with a job of another project that runs and one that has ended."""
    folder = Path(tempfile.mkdtemp(prefix="trainyard-machine-"))
    folder.chmod(0o755)
    machine = Machine(folder, canaries.user, **settings)
    with_inputs(machine)
    for name in ("broker.url", "redis/redis.conf", CLAIM):
        (machine.data_dir / name).parent.mkdir(parents=True, exist_ok=True)
        (machine.data_dir / name).write_text("secret")
    config = folder / "node.toml"
    config.write_text('[[devices]]\ntype = "A100"\nmemory_mb = 81920\ncount = 8\n')
    try:
        machine.start()
        machine.start_node("n1", config=config)
        wait_for(lambda: machine.get("/v1/nodes")["nodes"], seconds=40, what="the node")
        names = ("api", "coordinator", "node-n1")
        owned_pids.update({machine.redis.pid, *map(machine.pid, names)})
        yield machine
    finally:
        machine.stop()
        shutil.rmtree(folder, ignore_errors=True)
