"""A typed HTTP client for Trainyard, by the standard library alone.

    from trainyard.client import Client

    client = Client("http://127.0.0.1:8000", key)
    job_id = client.submit(document).job_id
    for event in client.follow_metrics(job_id):
        print(event.data)
    print(client.wait(job_id).status)

A refusal is raised as ApiError with ``code``, ``message`` and ``details``, a server that is away as Unreachable.
"""

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from trainyard._events import StreamEvent, follow
from trainyard._http import ApiError, ClientError, Transport, Unreachable, quote

__all__ = ["ApiError", "Client", "ClientError", "Job", "StreamEvent", "Submitted", "Unreachable"]

Record = dict[str, Any]
Records = list[Record]
Query = list[tuple[str, Any]]

TERMINAL = frozenset({"COMPLETED", "FAILED", "CANCELLED", "PREEMPTED"})
# The server sends at least a comment every 15 s.
STREAM_SILENCE_SECONDS = 40.0
SUBMIT_TRIES = 3
PATIENCE_SECONDS = 60.0
# Too many requests, and not ready yet: with a time after which to ask again.
BUSY = (429, 503)
TOKEN_HEADERS = {"scaidrive": "X-ScaiDrive-Token", "scaiatlas": "X-ScaiAtlas-Token", "user": "X-User-Token"}


@dataclass(frozen=True)
class Submitted:
    """The answer to a submission."""

    job_id: str
    status: str
    message: str = ""
    estimated_wait_seconds: float | None = None


@dataclass(frozen=True)
class Job:
    """A job as the server tells it; ``data`` holds everything, the other fields what most programs ask for."""

    job_id: str
    name: str
    status: str
    progress: float = 0.0
    current_step: int = 0
    total_steps: int | None = None
    eta_seconds: float | None = None
    elapsed_seconds: float = 0.0
    attempt: int = 0
    latest_metrics: Mapping[str, Any] = field(default_factory=dict)
    pending_reason: str = ""
    requested: str | None = None
    error_type: str | None = None
    error_message: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_terminal(self) -> bool:
        return self.status in TERMINAL

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "Job":
        names = cls.__dataclass_fields__.keys() - {"data"}
        known = {name: data[name] for name in names if data.get(name) is not None}
        return cls(**{"name": "", "status": "", **known}, data=data)


class Client:
    """Speaks to one server with one key; safe to use from several threads."""

    def __init__(self, url: str, key: str = "", *, timeout_seconds: float = 30.0) -> None:
        self._http = Transport(url, key, timeout_seconds)

    @property
    def url(self) -> str:
        return self._http.url

    # Jobs

    def submit(
        self, document: Mapping[str, Any], *, idempotency_key: str = "", tokens: Mapping[str, str] | None = None
    ) -> Submitted:
        """Hand in a job. A broken connection is tried again, never making a second job; a busy server is waited for.

        ``tokens`` open the user's own storage: those of ``TOKEN_HEADERS``.
        """
        headers = {"Idempotency-Key": idempotency_key or str(uuid.uuid4())}
        headers |= {TOKEN_HEADERS[name]: token for name, token in (tokens or {}).items()}
        patience = _Patience()
        tries_left = SUBMIT_TRIES
        while True:
            try:
                return _submitted(self._http.json("POST", "/v1/jobs", body=document, headers=headers))
            except (Unreachable, ApiError) as error:
                tries_left -= isinstance(error, Unreachable)
                if not tries_left:
                    raise
                time.sleep(patience.pause(error, 0.5))

    def check(self, document: Mapping[str, Any]) -> Record:
        """Everything that submitting would check, without submitting: the plan and the warnings."""
        return self._dict("POST", "/v1/jobs", query=[("dry_run", "true")], body=document)

    def get(self, job_id: str) -> Job:
        return Job.of(self._dict("GET", _job(job_id)))

    def list(
        self,
        *,
        status: Iterable[str] = (),
        labels: Mapping[str, str] | None = None,
        order_by: str = "",
        **filters: str,
    ) -> Iterator[Job]:
        """Jobs that match all filters (``queue``, ``name``, ``framework`` …), newest first, page after page."""
        query: Query = [("status", one) for one in status]
        query += [(f"labels.{name}", value) for name, value in (labels or {}).items()]
        query += [("order_by", order_by), ("page_size", 100), *filters.items()]
        return (Job.of(item) for item in self._items("/v1/jobs", "jobs", query))

    def cancel(self, job_id: str, *, reason: str = "") -> Job:
        return self._verb(job_id, "cancel", {"reason": reason})

    def pause(self, job_id: str, *, save_checkpoint: bool = True) -> Job:
        return self._verb(job_id, "pause", {"save_checkpoint": save_checkpoint})

    def resume(self, job_id: str, *, checkpoint_id: str = "") -> Job:
        return self._verb(job_id, "resume", {"checkpoint_id": checkpoint_id})

    def retry(self, job_id: str, *, checkpoint_id: str = "", from_start: bool = False) -> Job:
        """A new job that does the old one's work again; the answer is the new one."""
        return self._verb(job_id, "retry", {"checkpoint_id": checkpoint_id, "from_start": from_start})

    def checkpoint(self, job_id: str) -> Job:
        """Ask for a checkpoint now, without stopping."""
        return self._verb(job_id, "checkpoint", {})

    def wait(self, job_id: str, *, timeout_seconds: float = float("inf"), poll_seconds: float = 1.0) -> Job:
        """The job once it has ended. Raises TimeoutError.

        A server that is away or busy for up to a minute is waited for.
        """
        deadline = time.monotonic() + timeout_seconds
        patience = _Patience()
        while True:
            try:
                job = self.get(job_id)
                if job.is_terminal:
                    return job
                patience = _Patience()
                pause = poll_seconds
            except (Unreachable, ApiError) as error:
                pause = patience.pause(error, poll_seconds)
            if time.monotonic() > deadline:
                raise TimeoutError(f"job {job_id} has not ended within {timeout_seconds:g} s")
            time.sleep(min(pause, max(0.0, deadline - time.monotonic()) + poll_seconds))

    # What a job tells

    def events(self, job_id: str) -> Iterator[Record]:
        return self._items(f"{_job(job_id)}/events", "events", [("page_size", 100)])

    def metrics(self, job_id: str, *, names: Iterable[str] = (), since_step: int | None = None) -> Record:
        query = [("names", ",".join(names)), ("since_step", since_step)]
        return self._dict("GET", f"{_job(job_id)}/metrics", query=query)

    def logs(self, job_id: str, *, tail: int = 200, rank: int | None = None) -> Records:
        query = [("tail", tail), ("follow", "false"), ("rank", rank)]
        return list(self._dict("GET", f"{_job(job_id)}/logs", query=query)["lines"])

    def follow_events(self, job_id: str, *, last_id: str = "") -> Iterator[StreamEvent]:
        return self._stream(f"{_job(job_id)}/events", [], last_id)

    def follow_metrics(self, job_id: str, *, last_id: str = "") -> Iterator[StreamEvent]:
        return self._stream(f"{_job(job_id)}/metrics/stream", [], last_id)

    def follow_logs(
        self, job_id: str, *, tail: int | None = None, rank: int | None = None, last_id: str = ""
    ) -> Iterator[StreamEvent]:
        query = [("follow", "true"), ("tail", tail), ("rank", rank)]
        return self._stream(f"{_job(job_id)}/logs", query, last_id)

    def checkpoints(self, job_id: str) -> Records:
        return list(self._dict("GET", f"{_job(job_id)}/checkpoints")["checkpoints"])

    def attempts(self, job_id: str) -> Records:
        return list(self._dict("GET", f"{_job(job_id)}/attempts")["attempts"])

    def report(self, job_id: str) -> Record:
        return self._dict("GET", f"{_job(job_id)}/report")

    def artifacts(self, job_id: str) -> Records:
        return list(self._dict("GET", f"{_job(job_id)}/artifacts")["artifacts"])

    def download(self, job_id: str, path: str, to: Path) -> Path:
        """Save one artifact as the file ``to``; the file appears when it is complete."""
        url = f"{_job(job_id)}/artifacts/" + "/".join(quote(part) for part in path.split("/"))
        unfinished = to.with_name(to.name + ".part")
        self._http.save(url, unfinished)
        return unfinished.rename(to)

    # The cluster

    def nodes(self) -> Records:
        return list(self._items("/v1/nodes", "nodes", [("page_size", 100)]))

    def queue(self) -> Records:
        return list(self._items("/v1/queue", "entries", [("page_size", 100)]))

    def is_ready(self) -> bool:
        """Whether database, broker and a coordinator are there."""
        try:
            self._http.open("GET", "/health/ready").close()
        except ClientError:
            return False
        return True

    def _dict(self, method: str, path: str, **request: Any) -> Record:
        return dict(self._http.json(method, path, **request))

    def _verb(self, job_id: str, verb: str, body: Mapping[str, Any]) -> Job:
        return Job.of(self._dict("POST", f"{_job(job_id)}/{verb}", body=body))

    def _items(self, path: str, name: str, query: Query) -> Iterator[Record]:
        token = ""
        while True:
            page = self._dict("GET", path, query=[*query, ("page_token", token)])
            yield from page[name]
            token = page.get("next_page_token") or ""
            if not token:
                return

    def _stream(self, path: str, query: Query, last_id: str) -> Iterator[StreamEvent]:
        def connect(after: str) -> IO[bytes]:
            headers = {"Accept": "text/event-stream", **({"Last-Event-ID": after} if after else {})}
            return self._http.open("GET", path, query=query, headers=headers, timeout_seconds=STREAM_SILENCE_SECONDS)

        return follow(connect, last_id=last_id)


class _Patience:
    """How long a server that can't answer now is waited for, counted from its last answer."""

    def __init__(self) -> None:
        self._ends_at = time.monotonic() + PATIENCE_SECONDS

    def pause(self, error: ClientError, seconds: float) -> float:
        """How long to wait before asking again; raises the error when that is of no use, or no longer."""
        if isinstance(error, ApiError):
            if error.status not in BUSY or error.retry_after is None:
                raise error
            seconds = max(seconds, float(error.retry_after))
        if time.monotonic() + seconds > self._ends_at:
            raise error
        return seconds


def _job(job_id: str) -> str:
    return f"/v1/jobs/{quote(job_id)}"


def _submitted(data: Mapping[str, Any]) -> Submitted:
    return Submitted(
        data["job_id"],
        data["status"],
        data.get("message") or "",
        estimated_wait_seconds=data.get("estimated_wait_seconds"),
    )
