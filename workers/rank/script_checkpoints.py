"""Collects checkpoints that a script writes without hooks: those that match its ``checkpoint_glob``.

Runs beside the ranks in the sandbox, as ``python -m workers.rank.script_checkpoints --spec PATH``, where a link
can only lead to what the script itself can read. Files that did not change between two scans are complete and copied;
SIGTERM, when the ranks have ended, is followed by a last scan. Standard library and ``trainyard`` only.
"""

import argparse
import re
import shutil
import signal
import socket
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from app.host.processes import unblock_signal
from trainyard.protocol import checkpoint_manifest
from trainyard.protocol.channel import LineDecoder, encode, short_address
from trainyard.protocol.commands import CheckpointFailed, CheckpointSaved, parse
from trainyard.protocol.messages import CheckpointReady, fields_of
from trainyard.protocol.run_spec import RunSpec
from trainyard.protocol.session import Identity, Saved, manifest_for

SCAN_SECONDS = 2.0
# Below it the files have their paths in the script's working directory, to which the next attempt restores them.
FILES = "work"
_DRAFT = "kept.tmp"
_NUMBER = re.compile(r"\d{1,15}")

# Of every regular file of a checkpoint: relative path, size in bytes, time of its last change.
Signature = tuple[tuple[str, int, int], ...]


def main() -> int:
    """Scan until SIGTERM."""
    parser = argparse.ArgumentParser(prog="workers.rank.script_checkpoints", description=__doc__)
    parser.add_argument("--spec", required=True)
    spec = RunSpec.read(parser.parse_args().spec)
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    unblock_signal(signal.SIGTERM)
    checkpoints = ScriptCheckpoints(spec)
    while not over.wait(SCAN_SECONDS):
        checkpoints.scan()
    checkpoints.scan(last=True)
    return 0


class ScriptCheckpoints:
    """Knows which checkpoints exist, and which of them are collected already."""

    def __init__(self, spec: RunSpec) -> None:
        self._run_dir = spec.run_dir
        self._work = self._run_dir / "work"
        self._glob = spec.checkpoint_glob
        self._identity = Identity.of(spec)
        self._step = spec.resume_step
        self._last_scan: dict[str, Signature] = {}
        # What was restored from the resume checkpoint is not collected again.
        resume = spec.resume_checkpoint
        self._kept = _found(Path(resume) / FILES, self._glob) if resume else {}
        self._count = 0
        self._channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with short_address(spec.channel) as address:
            self._channel.connect(address)
        self._decoder = LineDecoder()

    def scan(self, *, last: bool = False) -> None:
        """Collect what is new and complete; ``last``: all writers have ended, so everything is complete."""
        found = _found(self._work, self._glob)
        due = [
            name
            for name, signature in found.items()
            if signature != self._kept.get(name) and (last or signature == self._last_scan.get(name))
        ]
        self._last_scan = found
        for name in sorted(due, key=lambda name: (_step_of(name) or 0, max(time for *_, time in found[name]))):
            self._keep(name, found[name])

    def _keep(self, name: str, signature: Signature) -> None:
        step = _step_of(name)
        self._step = self._step + 1 if step is None else step
        checkpoints = self._run_dir / "checkpoints"
        draft = checkpoints / _DRAFT
        checkpoint_manifest.discard(draft)
        try:
            for path, *_ in signature:
                target = draft / FILES / path
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(self._work / path, target, follow_symlinks=False)
            if _signature(self._work, self._work / name) != signature:
                return  # it is being rewritten; a later scan finds it complete
            self._count += 1
            final = checkpoints / f"kept-{self._count:04d}-step-{self._step}"
            checkpoint_manifest.commit(draft, final, manifest_for(self._identity, Saved(step=self._step)))
        except OSError as error:
            _print(f"{name} could not be stored: {error}")
            return
        finally:
            checkpoint_manifest.discard(draft)
        self._kept[name] = signature
        self._offer(final)

    def _offer(self, directory: Path) -> None:
        """Offer it and wait for the answer: a slow storage slows down collecting rather than fill the disk."""
        offer = CheckpointReady(step=self._step, epoch=0.0, path=str(directory), metrics={}, kept=True)
        self._channel.sendall(encode({"type": offer.type, "rank": 0, **fields_of(offer)}))
        while data := self._channel.recv(65536):
            for answer in map(parse, self._decoder.feed(data)):
                if isinstance(answer, CheckpointSaved | CheckpointFailed) and answer.path == offer.path:
                    if isinstance(answer, CheckpointFailed):
                        _print(f"{directory.name} was not stored: {answer.message}")
                    return
        sys.exit("the supervisor has ended")


def _found(root: Path, glob: str) -> dict[str, Signature]:
    """Relative path → signature, of all matching files and non-empty directories."""
    found = {}
    for path in root.glob(glob):
        if signature := _signature(root, path):
            found[path.relative_to(root).as_posix()] = signature
    return found


def _signature(root: Path, path: Path) -> Signature:
    return tuple(sorted(_files(root, path)))


def _files(root: Path, path: Path) -> Iterator[tuple[str, int, int]]:
    """Links are not followed: their targets are not the script's."""
    try:
        status = path.lstat()
        if stat.S_ISDIR(status.st_mode):
            for below in path.iterdir():
                yield from _files(root, below)
        elif stat.S_ISREG(status.st_mode):
            yield path.relative_to(root).as_posix(), status.st_size, status.st_mtime_ns
    except OSError:  # the script has just deleted or moved it
        return


def _step_of(name: str) -> int | None:
    """The last number in a name: of epoch=3-step=1200.ckpt 1200, of checkpoint-500/ 500."""
    numbers = _NUMBER.findall(name)
    return int(numbers[-1]) if numbers else None


def _print(what: str) -> None:
    print(f"trainyard: {what}", file=sys.stderr, flush=True)  # noqa: T201  (the job's log)


if __name__ == "__main__":
    sys.exit(main())
