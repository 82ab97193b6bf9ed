"""Whether a node's attempts may each have a host user of its own: found out by doing it, once for each node worker."""

import json
import os
import shutil
import stat
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from app.host import idmapped_mounts
from app.host.bubblewrap import LEAST
from app.host.gpu_devices import closed_gpu_files
from app.host.idmapped_mounts import PLACE
from app.host.overlays import MERGED, UPPER, WORK, lack_of_overlays
from app.host.processes import place

LOCKS = Path("/run/trainyard/uids")  # of all node workers of the machine
SWITCHED_OFF = "TRAINYARD_NODE_UIDS is empty"
_ACCOUNTS = Path("/etc/passwd")
_DELEGATED = (Path("/etc/subuid"), Path("/etc/subgid"))
_VERDICT = "own-users.json"  # below the data directory's run
_TRIAL_SECONDS = 20.0
_READS = "set -e; cat {directory}/private; : > {directory}/new; echo; read end || :"
_SECRET = "only its owner reads this"  # noqa: S105


def uid_range(text: str) -> range:
    """The setting `node.uids`, which has been checked."""
    first, _, last = text.partition("-")
    return range(int(first), int(last) + 1) if text else range(0)


@dataclass(frozen=True)
class OwnedPath:
    """A file or directory that a host user is to have."""

    path: Path
    opened: Callable[[], AbstractContextManager[int]] | None = None  # where others might exchange what lies at the path
    is_mapped: bool = True  # what the worker's user owns belongs to that user there
    is_needed: bool = True  # so; else it comes as it is from a file system that can't be mapped


def stage(namespace: int, sources: Sequence[OwnedPath], overlay: tuple[Path, Path] | None = None) -> int:
    """A namespace of mounts with each source at ``staged`` of its number, mapped by that user namespace.

    ``overlay``: (image, directory of what is written), which come together at MERGED. Raises OSError, and what opening
    a source raises.
    """
    layers = [OwnedPath(path) for path in overlay or ()]

    def fill() -> None:
        with ExitStack() as stack:
            trees = [_tree(stack, source, namespace) for source in (*sources, *layers)]
            idmapped_mounts.mount("tmpfs", PLACE, "mode=755")
            for number, found in enumerate(trees[: len(sources)]):
                _attach(found, staged(number))
            if layers:
                _attach_overlay(*trees[-2:])

    return idmapped_mounts.mount_namespace(fill)


def staged(number: int) -> Path:
    return PLACE / str(number)


def as_user(uid: int, namespace: int) -> list[str]:
    """A command to which another is added, which the user runs in that namespace of mounts of this process."""
    inside = f"--mount=/proc/{os.getpid()}/fd/{namespace}"
    return ["nsenter", inside, "--setgid", str(uid), "--setuid", str(uid), "--"]


def _tree(stack: ExitStack, source: OwnedPath, namespace: int) -> int:
    path = source.path if source.opened is None else stack.enter_context(source.opened())
    try:
        found = idmapped_mounts.tree(path, namespace if source.is_mapped else None)
    except OSError:
        if source.is_needed or not source.is_mapped:
            raise
        found = idmapped_mounts.tree(path)
    stack.callback(os.close, found)
    return found


def _attach(tree: int, target: Path) -> None:
    if stat.S_ISDIR(os.fstat(tree).st_mode):
        target.mkdir()
    else:
        target.touch()
    idmapped_mounts.attach(tree, target)


def _attach_overlay(lower_tree: int, changes_tree: int) -> None:
    lower, changes, merged = (PLACE / name for name in ("lower", "changes", MERGED))
    merged.mkdir()
    _attach(lower_tree, lower)
    _attach(changes_tree, changes)
    options = f"lowerdir={lower},upperdir={changes / UPPER},workdir={changes / WORK}"
    idmapped_mounts.mount("overlay", merged, options)


@cache
def lack_of_own_users(uids: str, data_dir: Path) -> str:
    """Why attempts of a node with these settings have the worker's user; empty where each has its own."""
    if not uids:
        return SWITCHED_OFF
    if os.geteuid() != 0:
        return "its worker is not root"
    if missing := [name for name in ("unshare", "nsenter", "bwrap") if shutil.which(name) is None]:
        return f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed"
    if shared := overlap_of(uid_range(uids)):
        return shared
    try:
        private_directory(LOCKS)
        data_dir.mkdir(parents=True, exist_ok=True)
        return _tried(uid_range(uids)[-1], data_dir.resolve())
    except OSError as error:
        return str(error)


def lack_of_users(uids: str, data_dir: Path) -> str:
    """As ``lack_of_own_users``, also for what its devices are."""
    return lack_of_own_users(uids, data_dir) or lack_by(closed_gpu_files())


def lack_by(closed: Sequence[Path]) -> str:
    """Why no attempt that needs these device files has a user of its own; empty without any."""
    return f"not all users may use {', '.join(map(str, closed))}" if closed else ""


def private_directory(path: Path) -> None:
    """Make it where it is missing. Raises OSError, also where others could change what lies in it."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.lstat()
    others = stat.S_IWGRP | stat.S_IWOTH
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & others:
        raise OSError(f"{path} must be a directory that belongs to the worker's user, and that no other may write to")


def overlap_of(uids: range, accounts: Path = _ACCOUNTS, delegated: Sequence[Path] = _DELEGATED) -> str:
    """Who else has users or groups of this range, as files of the machine say; empty where they are free."""
    for path in (accounts, *delegated):
        for fields in (line.split(":") for line in _lines_of(path)):
            try:
                first, count = (int(fields[2]), 1) if path == accounts else (int(fields[1]), int(fields[2]))
            except (IndexError, ValueError):
                continue
            if count > 0 and first < uids.stop and first + count > uids.start:
                whose = f"{first}-{first + count - 1}" if count > 1 else str(first)
                return f"TRAINYARD_NODE_UIDS overlaps with {whose} of {fields[0]} in {path}; choose another range"
    return ""


def _lines_of(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []


def _tried(uid: int, data_dir: Path) -> str:
    """Has that user read a private file of ours, in a sandbox, and through an overlay where there are any."""
    with_overlay = not lack_of_overlays(data_dir)
    namespaces: list[int] = []
    with tempfile.TemporaryDirectory(dir=data_dir) as name:
        directory = Path(name, "lower")
        directory.mkdir(mode=0o700)
        private = directory / "private"
        private.touch(mode=0o600)
        private.write_text(_SECRET)
        changes = Path(name, "changes")
        for part in (UPPER, WORK):
            (changes / part).mkdir(parents=True)
        try:
            namespaces.append(idmapped_mounts.user_namespace(uid))
            layers = (directory, changes) if with_overlay else None
            namespaces.append(stage(namespaces[0], [OwnedPath(directory)], layers))
            said = _read_by(uid, namespaces[1], staged(0))
            return said or (_read_by(uid, namespaces[1], PLACE / MERGED) if with_overlay else "")
        finally:
            for namespace in namespaces:
                os.close(namespace)
            if (changes / WORK / "work").exists():
                (changes / WORK / "work").chmod(0o700)


def _read_by(uid: int, namespace: int, directory: Path) -> str:
    """Why the user can't; also why this process could not look after its processes."""
    inside = [*LEAST, "--bind", str(directory), str(PLACE), "sh", "-c", _READS.format(directory=PLACE)]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [*as_user(uid, namespace), "bwrap", *inside], stdin=pipe, stdout=pipe, stderr=pipe, text=True
    ) as process:
        assert process.stdout is not None  # noqa: S101 – a pipe
        too_long = threading.Timer(_TRIAL_SECONDS, process.kill)
        too_long.start()
        line, blind = process.stdout.readline().strip(), ""
        try:
            _environment_of(process.pid)
        except OSError as error:
            blind = f"the environment of another user's processes can't be read: {error.strerror}"
        _, why = process.communicate()
        too_long.cancel()
    if line != _SECRET or process.returncode != 0:
        return why.strip() or f"exit code {process.returncode}"
    return blind


def _environment_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


def record_verdict(data_dir: Path, lack: str) -> None:
    """Tell the supervisors of this data directory, so that they need not try it. Raises OSError."""
    path = data_dir / "run" / _VERDICT
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps({"place": place(), "lack": lack}))
    temporary.replace(path)


def recorded_lack(data_dir: Path) -> str:
    """What a node worker of this place has found out; without one, no attempt has a user of its own."""
    try:
        found = json.loads((data_dir / "run" / _VERDICT).read_text())
        lack, where = str(found["lack"]), found["place"]
    except (OSError, ValueError, KeyError, TypeError):
        return "no node worker has tried it"
    return lack if where == place() else "the node worker has not tried it since the last boot"
