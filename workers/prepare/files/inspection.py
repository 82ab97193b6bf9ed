"""Inspection of an uploaded file, whose content is passed from the storage into a sandboxed program.

`python -m workers.prepare.files.inspection`, or in the process of a forked preflight. The program
(`workers.prepare.files.records`) parses what users upload, and sees neither settings, nor storage, nor network.
"""

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import IO, Any, BinaryIO

from app.domain.errors import NotFound, TrainyardError
from app.storage.object_keys import user_file_key
from app.storage.storage import Storage
from config.settings import Settings
from workers.prepare.confined_program import last_line, run, scratch
from workers.prepare.own_user import borrowed_user
from workers.prepare.preflight_answer import answer
from workers.sandbox.sandbox import BUBBLEWRAP, PROCESS, ProcessGroup, Sandbox, SandboxUnavailable, choose_sandbox
from workers.sandbox.spec import SandboxSpec

REPORT, LOG = "report.json", "inspection.log"
# A storage that fails is asked again, so that an outage does not start one process after the other.
RETRY_SECONDS, WAIT_SECONDS = 1.0, 20.0
_PIECE_BYTES = 256 << 10
_MOST_REPORT_BYTES = 1 << 20
_CHANGED = "its content in the storage is not what was uploaded; upload it again"

Report = dict[str, Any]


def main() -> int:
    return answer(inspect_file)


def inspect_file(settings: Settings, question: Mapping[str, Any]) -> Report:
    """{records, shape, problems}; {unavailable} while the storage or the sandbox fails; {left_out} without a result."""
    storage, key = Storage(settings.storage.url), user_file_key(question["project"], question["file_id"])
    until = time.monotonic() + float(question["seconds"])
    try:
        sandbox = _sandbox(settings)
    except SandboxUnavailable as error:
        time.sleep(min(WAIT_SECONDS, float(question["seconds"])))  # as for a storage that fails
        return {"unavailable": f"this coordinator inspects no files without a sandbox: {error}"}
    try:
        content = _opened(storage, key, time.monotonic() + WAIT_SECONDS)
    except NotFound:
        return {"problems": ["its content is not in the storage any more; upload it again"]}
    except TrainyardError as error:
        return {"unavailable": error.message}
    with content:
        report = _inspect(settings, question, sandbox, content, until)
    if not report.get("problems", [_CHANGED]) and report.get("read_bytes") != question["size_bytes"]:
        return {"problems": [_CHANGED]}
    return report


def _opened(storage: Storage, key: str, until: float) -> BinaryIO:
    """Raises NotFound, TransientStorageError, StorageRefused."""
    while True:
        try:
            path = storage.local_path(key)
            return path.open("rb", buffering=0) if path is not None and path.is_file() else storage.open(key)
        except NotFound:
            raise
        except TrainyardError:
            if time.monotonic() > until:
                raise
        time.sleep(RETRY_SECONDS)


def _inspect(
    settings: Settings, question: Mapping[str, Any], sandbox: Sandbox, content: BinaryIO, until: float
) -> Report:
    with scratch(settings, "file") as view, contextlib.ExitStack() as opened:
        output, log = (opened.enter_context((view.run_dir / name).open("w+b")) for name in (REPORT, LOG))
        command, failures = _command(settings, question, sandbox), _Failures()
        limit = max(1.0, until - time.monotonic())
        with _fed(content, failures) as descriptor, borrowed_user(settings, view, sandbox) as user:
            why = run(sandbox, command, SandboxSpec(view=view, user=user), (descriptor, output, log), limit)
        output.seek(0)
        return {"unavailable": failures.storage} if failures.storage else _read(output, log, why)


class _Failures:
    """Why there is no result though the program has not failed: the storage has."""

    def __init__(self) -> None:
        self.storage = ""


def _command(settings: Settings, question: Mapping[str, Any], sandbox: Sandbox) -> list[str]:
    arguments = {
        "purpose": question["purpose"],
        "line-bytes": settings.files.line_max_bytes,
        "most-bytes": max(settings.files.max_bytes, settings.files.upload_max_bytes),
        "memory-bytes": settings.preflight.memory_mb << 20,
    }
    command = [sys.executable, "-m", "workers.prepare.files.records"]
    command += [f"--{name}={value}" for name, value in arguments.items()]
    return [*command, f"--die-with={os.getpid()}"] if sandbox.kind == PROCESS else command


def _sandbox(settings: Settings) -> Sandbox:
    """The sandbox; without one, our own code reads the file, and no code of users runs.

    Raises SandboxUnavailable where the setting demands one.
    """
    try:
        return choose_sandbox(settings.node.sandbox)
    except SandboxUnavailable:
        if settings.node.sandbox == BUBBLEWRAP:
            raise
        return ProcessGroup()


@contextlib.contextmanager
def _fed(content: BinaryIO, failures: _Failures) -> Iterator[int]:
    """A descriptor to read the content from: the file itself, or a pipe that a thread fills from the storage."""
    try:
        descriptor = content.fileno()
    except (AttributeError, OSError):
        descriptor = -1
    if descriptor >= 0:
        yield descriptor
        return
    reader, writer = os.pipe()
    feeder = threading.Thread(target=_feed, args=(content, writer, failures), daemon=True)
    feeder.start()
    try:
        yield reader
    finally:
        os.close(reader)  # ends a feeder that is blocked
        feeder.join()


def _feed(content: BinaryIO, writer: int, failures: _Failures) -> None:
    with open(writer, "wb", buffering=0) as pipe:
        try:
            while piece := content.read(_PIECE_BYTES):
                pipe.write(piece)
        except BrokenPipeError:
            pass  # the program has seen enough
        except Exception as error:  # noqa: BLE001 – fsspec's file systems raise errors of their own
            failures.storage = f"the storage failed: {error}"


def _read(output: IO[bytes], log: IO[bytes], why_none: str) -> Report:
    try:
        report = json.loads(output.read(_MOST_REPORT_BYTES))
        if isinstance(report, dict) and isinstance(report.get("problems"), list):
            return report
    except (ValueError, RecursionError):
        pass
    return {"left_out": [f"the inspection has no result: {why_none or 'it said nothing'}{last_line(log)}"]}


if __name__ == "__main__":
    sys.exit(main())
