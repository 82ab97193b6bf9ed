"""A typed HTTP client for Trainyard, by the standard library alone; docs/reference/client.md shows how it is used.

    from trainyard.client import Client

    client = Client("http://127.0.0.1:8000", key)
    job_id = client.submit(document).job_id
    for event in client.follow_metrics(job_id):
        print(event.data)
    print(client.wait(job_id).status)

A refusal is raised as an ApiError with ``code``, ``message`` and ``details``, a server that is away as Unreachable.
"""

import http.client
import json
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast

from trainyard import records
from trainyard._calls import Calls, Patience, Tries, given, query_of, several
from trainyard._downloads import download
from trainyard._errors import (
    ApiError,
    BrokenContent,
    ClientError,
    Conflict,
    Forbidden,
    InvalidRequest,
    LimitExceeded,
    NotFound,
    ServerError,
    Unauthenticated,
    Unavailable,
    Unreachable,
)
from trainyard._events import SILENCE_SECONDS, StreamEvent, follow
from trainyard._http import Query, Transport, quote
from trainyard._resources import Audit, Data, Keys, Nodes, Projects, Queues, Webhooks
from trainyard.records import TERMINAL, Job, Submitted

__all__ = [
    "IMPATIENT", "TERMINAL", "ApiError", "BrokenContent", "Client", "ClientError", "Conflict", "Forbidden",
    "InvalidRequest", "Job", "LimitExceeded", "NotFound", "Patience", "ServerError", "StreamEvent", "Submitted",
    "Unauthenticated", "Unavailable", "Unreachable",
]  # fmt: skip

TOKEN_HEADERS = {"scaidrive": "X-ScaiDrive-Token", "scaiatlas": "X-ScaiAtlas-Token", "user": "X-User-Token"}
IMPATIENT = Patience(tries=1, seconds=0.0)
WAIT_PATIENCE = Patience(tries=1_000_000, seconds=60.0)  # a job runs on, whoever is away for a minute
LAST_LOOK_SECONDS = 1.0  # so long the server may take to answer when the time to wait is over


class Client:
    """Speaks to one server with one key; safe to use from several threads.

    ``project`` is for a key that sees several: it acts in that one. ``patience`` says how often a request is tried
    again when the connection breaks, and how long a busy server is waited for.
    """

    def __init__(
        self,
        url: str,
        key: str = "",
        *,
        project: str = "",
        timeout_seconds: float = 30.0,
        patience: Patience = Patience(),  # noqa: B008 – a frozen value
    ) -> None:
        self._http = Transport(url, key, timeout_seconds, project=project)
        self._calls = Calls(self._http, patience)
        self.queues = Queues(self._calls)
        self.nodes = Nodes(self._calls)
        self.projects = Projects(self._calls)
        self.keys = Keys(self._calls)
        self.audit = Audit(self._calls)
        self.webhooks = Webhooks(self._calls)
        self.data = Data(self._calls)

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
        headers = {"Idempotency-Key": idempotency_key or str(uuid.uuid4()), **_forwarded(tokens)}
        return Submitted.of(self._calls.record("POST", "/v1/jobs", body=document, headers=headers))

    def apply(
        self, path: str, manifest: Mapping[str, Any], *, warn: Callable[[str], None] | None = None
    ) -> tuple[dict[str, Any], bool]:
        """Create or change the resource of Kubernetes at this path; what it is then, and whether it was created.

        ``warn`` is called with a line for each field of the manifest that has no effect.
        """
        headers = {"Content-Type": "application/apply-patch+yaml"}
        with self._http.open("PATCH", path, body=manifest, headers=headers) as response:
            found: dict[str, Any] = json.loads(response.read())
            if warn is not None:
                for header in response.headers.get_all("Warning") or ():
                    warn(_text_of_warning(header))
            return found, response.status == HTTPStatus.CREATED

    def dry_run(self, document: Mapping[str, Any], *, tokens: Mapping[str, str] | None = None) -> records.DryRun:
        """Everything that submitting would check, without submitting: the plan and the warnings."""
        query, headers = query_of(dry_run="true"), _forwarded(tokens)
        return cast(
            "records.DryRun", self._calls.record("POST", "/v1/jobs", query=query, body=document, headers=headers)
        )

    def get(self, job_id: str, *, patience: Patience | None = None) -> Job:
        """``patience`` other than the client's own, ``IMPATIENT`` for whoever asks again and again by itself."""
        return Job.of(Calls(self._http, patience or self._calls.patience).record("GET", _job(job_id)))

    def list(
        self,
        *,
        status: Iterable[str] = (),
        labels: Mapping[str, str] | None = None,
        created_after: datetime | str = "",
        created_before: datetime | str = "",
        order_by: str = "",
        **filters: str,
    ) -> Iterator[Job]:
        """Jobs that match all filters, newest first, page after page.

        ``filters``: ``queue``, ``project``, ``name`` (its beginning), ``training_type``, ``framework``,
        ``parent_job_id``.
        """
        # Not by query_of: an empty value is one that a label may have.
        wanted = [(f"labels.{name}", value) for name, value in (labels or {}).items()]
        query = [*query_of(status=several(status)), *wanted]
        query += query_of(created_after=created_after, created_before=created_before, order_by=order_by, **filters)
        return map(Job.of, self._calls.pages("/v1/jobs", "jobs", query))

    def change(
        self,
        job_id: str,
        *,
        priority: int | None = None,
        labels: Mapping[str, str] | None = None,
        preemptible: bool | None = None,
    ) -> Job:
        """Of a job that has not ended; ``labels`` replace all it had."""
        body = given(priority=priority, labels=labels, preemptible=preemptible)
        return Job.of(self._calls.record("PATCH", _job(job_id), body=body))

    def delete(self, job_id: str, *, artifacts: bool = False) -> None:
        """Of a job that has ended; with ``artifacts`` its files go too."""
        self._calls.send("DELETE", _job(job_id), query=query_of(artifacts="true" if artifacts else ""))

    def cancel(self, job_id: str, *, reason: str = "") -> Job:
        return self._verb(job_id, "cancel", {"reason": reason})

    def pause(self, job_id: str, *, save_checkpoint: bool = True, force: bool = False) -> Job:
        """Save and stop until it is resumed; ``wait_paused`` waits for it. Raises Conflict when it can't save.

        Without ``save_checkpoint`` it is stopped at once; with ``force`` also when the checkpoint can't be saved.
        """
        return self._verb(job_id, "pause", {"save_checkpoint": save_checkpoint, **given(force=force or None)})

    def resume(self, job_id: str, *, checkpoint_id: str = "", from_best: bool = False) -> Job:
        """Let a paused job go on: where it was, from one of its checkpoints, or from its best one."""
        return self._verb(job_id, "resume", {"checkpoint_id": checkpoint_id, **given(from_best=from_best or None)})

    def retry(
        self,
        job_id: str,
        *,
        checkpoint_id: str = "",
        from_start: bool = False,
        resources: Mapping[str, Any] | None = None,
        tokens: Mapping[str, str] | None = None,
    ) -> Job:
        """A new job that does the work of one that has ended again, by default from its newest checkpoint.

        ``resources`` replace those of its ``resource_config`` one by one; ``tokens`` as of ``submit``, where older ones
        would not do any more. The answer is the new job.
        """
        body: dict[str, Any] = {"checkpoint_id": checkpoint_id, "from_start": from_start}
        if resources:
            body |= {"modify_resources": True, "new_resource_config": resources}
        return Job.of(self._calls.record("POST", f"{_job(job_id)}/retry", body=body, headers=_forwarded(tokens)))

    def checkpoint(self, job_id: str) -> Job:
        """Ask for a checkpoint now, without stopping."""
        return self._verb(job_id, "checkpoint", {})

    def wait(self, job_id: str, *, timeout_seconds: float = float("inf"), poll_seconds: float = 1.0) -> Job:
        """The job once it has ended. Raises TimeoutError: the last look is made when the time is over.

        A server that is away or busy for up to a minute is waited for, but not beyond that time.
        """
        return self._wait(job_id, lambda job: job.is_terminal, "ended", timeout_seconds, poll_seconds)

    def wait_paused(self, job_id: str, *, timeout_seconds: float = float("inf"), poll_seconds: float = 0.5) -> Job:
        """The job once nothing is left of the wish to pause it: PAUSED, or it has ended or goes on, because its
        checkpoint could not be saved (event ``job.pause_failed``). Raises TimeoutError.
        """
        return self._wait(job_id, lambda job: job.requested is None, "paused", timeout_seconds, poll_seconds)

    def _wait(
        self, job_id: str, happened: Callable[[Job], bool], what: str, timeout_seconds: float, poll_seconds: float
    ) -> Job:
        deadline, tries = time.monotonic() + timeout_seconds, Tries(WAIT_PATIENCE)
        while True:
            try:
                patient_seconds = max(deadline - time.monotonic(), LAST_LOOK_SECONDS)
                job = Job.of(self._http.json("GET", _job(job_id), most_seconds=patient_seconds))
                if happened(job):
                    return job
                pause, tries = poll_seconds, Tries(WAIT_PATIENCE)
            except (Unreachable, ApiError) as error:
                pause = tries.pause(error, least_seconds=poll_seconds)
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"job {job_id} has not {what} within {timeout_seconds:g} s")
            time.sleep(min(pause, left))

    # What a job tells

    def events(self, job_id: str) -> Iterator[records.Event]:
        """Its history, oldest first."""
        return cast("Iterator[records.Event]", self._calls.pages(f"{_job(job_id)}/events", "events"))

    def metrics(
        self, job_id: str, *, names: Iterable[str] = (), since_step: int | None = None, max_points: int | None = None
    ) -> records.Metrics:
        query = query_of(names=",".join(several(names)), since_step=since_step, max_points=max_points)
        return cast("records.Metrics", self._calls.record("GET", f"{_job(job_id)}/metrics", query=query))

    def logs(self, job_id: str, *, tail: int = 200, rank: int | None = None) -> records.LogLines:
        query = query_of(tail=tail, follow="false", rank=rank)
        return cast("records.LogLines", self._calls.record("GET", f"{_job(job_id)}/logs", query=query)["lines"])

    def follow_events(self, job_id: str, *, last_id: str = "") -> Iterator[StreamEvent]:
        """The history and what is added to it, until the job has ended."""
        return self._stream(f"{_job(job_id)}/events", [], last_id)

    def follow_metrics(self, job_id: str, *, names: Iterable[str] = (), last_id: str = "") -> Iterator[StreamEvent]:
        return self._stream(f"{_job(job_id)}/metrics/stream", query_of(names=",".join(several(names))), last_id)

    def follow_logs(
        self, job_id: str, *, tail: int | None = None, rank: int | None = None, last_id: str = ""
    ) -> Iterator[StreamEvent]:
        return self._stream(f"{_job(job_id)}/logs", query_of(follow="true", tail=tail, rank=rank), last_id)

    def checkpoints(self, job_id: str) -> records.Checkpoints:
        return cast("records.Checkpoints", self._calls.record("GET", f"{_job(job_id)}/checkpoints")["checkpoints"])

    def attempts(self, job_id: str) -> records.Attempts:
        return cast("records.Attempts", self._calls.record("GET", f"{_job(job_id)}/attempts")["attempts"])

    def report(self, job_id: str) -> records.Report:
        """After the end: model hash, final metrics, compute time. Raises NotFound until then."""
        return cast("records.Report", self._calls.record("GET", f"{_job(job_id)}/report"))

    def artifacts(self, job_id: str, *, kind: str = "") -> records.Artifacts:
        """The files of the model; ``kind`` ``tensorboard``, ``diagnostics`` or ``all`` says which others."""
        path, query = f"{_job(job_id)}/artifacts", query_of(kind=kind)
        return cast("records.Artifacts", self._calls.record("GET", path, query=query)["artifacts"])

    def download(self, job_id: str, path: str, to: Path) -> Path:
        """Save one artifact as the file ``to``, which appears when it is complete and its hash is right.

        What was cut off goes on where it was, also in a later call.
        """
        return download(self._calls, f"{_job(job_id)}/artifacts/" + "/".join(map(quote, path.split("/"))), to)

    # The rest

    def cluster(self) -> dict[str, Any]:
        """Nodes and jobs by state, devices by type, queues, coordinators."""
        return self._calls.record("GET", "/v1/cluster")

    def training_types(self) -> records.TrainingTypes:
        """What can be trained, with every hyperparameter."""
        return cast("records.TrainingTypes", self._calls.record("GET", "/v1/training-types")["training_types"])

    def error_types(self) -> records.ErrorTypes:
        """Why jobs fail."""
        return cast("records.ErrorTypes", self._calls.record("GET", "/v1/error-types")["error_types"])

    def is_ready(self) -> bool:
        """Whether database, broker and a coordinator are there."""
        try:
            self._http.open("GET", "/health/ready").close()
        except ClientError:
            return False
        return True

    def _verb(self, job_id: str, verb: str, body: Mapping[str, Any]) -> Job:
        return Job.of(self._calls.record("POST", f"{_job(job_id)}/{verb}", body=body))

    def _stream(self, path: str, query: Query, last_id: str) -> Iterator[StreamEvent]:
        asked = list(query)

        def connect(after: str) -> http.client.HTTPResponse:
            headers = {"Accept": "text/event-stream", **({"Last-Event-ID": after} if after else {})}
            return self._http.open("GET", path, query=asked, headers=headers, timeout_seconds=SILENCE_SECONDS)

        return follow(connect, last_id=last_id, patience_seconds=self._calls.patience.seconds)


def _job(job_id: str) -> str:
    return f"/v1/jobs/{quote(job_id)}"


def _forwarded(tokens: Mapping[str, str] | None) -> dict[str, str]:
    return {TOKEN_HEADERS[name]: token for name, token in (tokens or {}).items()}


def _text_of_warning(header: str) -> str:
    """Of `299 - "text"`, in which quotes and backslashes are escaped."""
    quoted = header.partition('"')[2].removesuffix('"')
    return re.sub(r"\\(.)", r"\1", quoted)
