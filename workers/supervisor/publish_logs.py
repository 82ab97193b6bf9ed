"""Copies the log of an attempt to the job's ``log_path``: whatever the outcome, which it never changes."""

import logging
import math
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from app.domain.lifecycle.events import EventType
from app.storage.logs import LogReader
from trainyard.protocol.commands import DRAIN
from workers.publishing.copying import digest_of
from workers.publishing.orders import PublishedFile, PublishOrder
from workers.publishing.runner import Publication, log_options
from workers.publishing.streams import Contents, FileStreams
from workers.supervisor.finished_attempt import FinishedAttempt
from workers.supervisor.recording.report_writer import Note

log = logging.getLogger(__name__)

# A copy never holds devices for longer: a place may accept bytes one by one, or fail at each try.
MOST_SECONDS = 300.0
# Where a user waits for the end of the attempt, or another job for its devices.
HURRIED_SECONDS = 20.0
# Of what a node waits for when it is drained or stops, the ranks' last checkpoint takes the most.
LEAVING_SECONDS = 5.0


def deliver_logs(attempt: FinishedAttempt) -> None:
    """Copy the lines of this node's ranks, one file per rank. They are stored already, and read from there twice: for
    the size and digest of each file, and to send it.
    """
    work = attempt.work
    if not log_options(work) or attempt.is_lost():
        return
    try:
        if contents := _contents(attempt):
            with tempfile.TemporaryDirectory(prefix="log-", dir=attempt.context.run.taken_over) as directory:
                _copy(attempt, Path(directory) / "source", contents)
    except Exception as error:
        log.exception("the log of the attempt can't be copied")
        _warn(attempt, f"{type(error).__name__}: {error}")


def _contents(attempt: FinishedAttempt) -> Contents:
    reader, found = LogReader(attempt.context.storage, attempt.work.job_id), {}
    for rank in reader.ranks(attempt.work.attempt):
        first = next(reader.blocks(rank=rank, attempt=attempt.work.attempt, live=False), None)
        if first is None or (attempt.work.is_gang and first.node != attempt.work.part):
            continue  # the supervisor of its node copies it
        found[f"rank-{rank}.log"] = partial(_text, attempt, rank)
    return found


def _text(attempt: FinishedAttempt, rank: int) -> Iterator[bytes]:
    reader = LogReader(attempt.context.storage, attempt.work.job_id)
    for block in reader.blocks(rank=rank, attempt=attempt.work.attempt, live=False):
        yield "".join(f"{block.at} {text}\n" for text in block.texts).encode()


def _files(contents: Contents) -> Iterator[PublishedFile]:
    for name, content in contents.items():
        size, digest = digest_of(content(), lambda _: None)
        yield PublishedFile(path=name, size_bytes=size, sha256=digest)


def _copy(attempt: FinishedAttempt, source: Path, contents: Contents) -> None:
    work, files = attempt.work, tuple(_files(contents))
    node = f"-node-{work.part}" if work.is_gang else ""
    options = log_options(work, f"{work.job_id}/attempt-{work.attempt}{node}")
    order = PublishOrder(job_id=work.job_id, job_name=work.name, source=source, files=files, is_streamed=True)
    publication = Publication(attempt.settings, work, order, options=options, on_done=attempt.loop.wake)
    streams, hurry = FileStreams(source, contents), Hurry(attempt)
    streams.start()
    publication.start()
    try:
        attempt.loop.run_until(lambda: publication.result is not None or hurry.is_over())
    finally:
        publication.stop()
        streams.stop()
    result = publication.result
    if result is None:
        _warn(attempt, f"this took longer than the {hurry.seconds:g} s that the end of the job may take for it")
    elif problems := "; ".join(result.failures + result.passing):
        _warn(attempt, problems)
    else:
        data = {"log_uri": result.uri, "files": len(files), "size_bytes": sum(each.size_bytes for each in files)}
        message = f"the log of attempt {work.attempt} was copied to {result.uri}"
        attempt.reporter.add(Note(kind=EventType.EXPORTED, message=message, data=data))


def _warn(attempt: FinishedAttempt, problem: str) -> None:
    message = f"the log of attempt {attempt.work.attempt} is stored, but was not copied to log_path: {problem}"
    attempt.reporter.add(Note(kind=EventType.WARNING, message=attempt.context.redaction.bounded(message, 2000)))


class Hurry:
    """Whether the copy has to end before it is complete. ``seconds``: how long it may take."""

    def __init__(self, attempt: FinishedAttempt) -> None:
        self._attempt = attempt
        self._until = math.inf
        self.seconds = MOST_SECONDS
        self._allow(MOST_SECONDS)

    def is_over(self) -> bool:
        if self._attempt.is_lost():
            return True
        seconds = self._seconds()
        if seconds < self.seconds:
            self._allow(seconds)
        return time.monotonic() >= self._until

    def _allow(self, seconds: float) -> None:
        self.seconds, self._until = seconds, min(self._until, time.monotonic() + seconds)
        self._attempt.loop.call_after(seconds, lambda: None)  # so that this is asked again

    def _seconds(self) -> float:
        stopping = self._attempt.observations.stopping
        if stopping in ("requeue", DRAIN) or self._attempt.machine_stops():
            return LEAVING_SECONDS
        return MOST_SECONDS if stopping is None else HURRIED_SECONDS
