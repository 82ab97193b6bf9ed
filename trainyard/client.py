"""A typed HTTP client for Trainyard, by the standard library alone; docs/reference/client.md shows how it is used.

    from trainyard.client import Client

    client = Client("http://127.0.0.1:8000", key)
    job_id = client.submit(document).job_id
    for event in client.follow_metrics(job_id):
        print(event.data)
    print(client.wait(job_id).status)

A refusal is raised as an ApiError with ``code``, ``message`` and ``details``, a server that is away as Unreachable.
"""

import json
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal, cast

from trainyard import records
from trainyard._client.batches import Batches
from trainyard._client.calls import TOKEN_HEADERS, Calls, RetryPolicy, as_list, forwarded, query_of, without_unset
from trainyard._client.downloads import download
from trainyard._client.errors import (
    AmbiguousHandle,
    ApiError,
    BrokenContent,
    ClientError,
    Conflict,
    Forbidden,
    InvalidRequest,
    LimitExceeded,
    NoServer,
    NotFound,
    ServerError,
    Unauthenticated,
    Unavailable,
    Unreachable,
)
from trainyard._client.evaluations import Evaluations
from trainyard._client.events import StreamEvent
from trainyard._client.files import Files
from trainyard._client.handles import find, is_job_id
from trainyard._client.http import Query, Transport, quote
from trainyard._client.inference import InferenceJobs
from trainyard._client.job_logs import JobLogs
from trainyard._client.provenance import Provenance
from trainyard._client.reaching import Reaching
from trainyard._client.resources import Audit, Data, Keys, Models, Nodes, Projects, Queues, Users, Webhooks
from trainyard._client.services import Services
from trainyard._client.sweeps import Sweeps
from trainyard._client.waiting import poll
from trainyard.records import TERMINAL, Job, Submitted

__all__ = [
    "IMPATIENT",
    "NO_RETRY",
    "TERMINAL",
    "TOKEN_HEADERS",
    "AmbiguousHandle",
    "ApiError",
    "BrokenContent",
    "Client",
    "ClientError",
    "Conflict",
    "Forbidden",
    "InvalidRequest",
    "Job",
    "LimitExceeded",
    "NoServer",
    "NotFound",
    "Patience",
    "RetryPolicy",
    "ServerError",
    "StreamEvent",
    "Submitted",
    "Unauthenticated",
    "Unavailable",
    "Unreachable",
    "is_job_id",
]

NO_RETRY = RetryPolicy(tries=1, seconds=0.0)
_STARTED = {"TRAINING", "EVALUATING", "SERVING", "PAUSED", *TERMINAL}
Patience, IMPATIENT = RetryPolicy, NO_RETRY  # former names, which programs of users import


class Client(JobLogs, Reaching):
    """A client of one server with one key; safe to use from several threads.

    ``project`` selects the project for a key that sees several. ``patience`` is the retry policy: how often to retry
    broken connections, and how long to wait for a busy server.
    """

    def __init__(
        self,
        url: str,
        key: str = "",
        *,
        project: str = "",
        timeout_seconds: float = 30.0,
        patience: RetryPolicy = RetryPolicy(),  # noqa: B008 – a frozen value
    ) -> None:
        self._http = Transport(url, key, timeout_seconds, project=project)
        self._calls = Calls(self._http, patience)
        self.queues = Queues(self._calls)
        self.nodes = Nodes(self._calls)
        self.projects = Projects(self._calls)
        self.keys = Keys(self._calls)
        self.users = Users(self._calls)
        self.audit = Audit(self._calls)
        self.models = Models(self._calls)
        self.webhooks = Webhooks(self._calls)
        self.data = Data(self._calls)
        self.sweeps = Sweeps(self._calls)
        self.inference = InferenceJobs(self._calls)
        self.evaluations = Evaluations(self._calls)
        self.services = Services(self._calls)
        self.provenance = Provenance(self._calls)
        self.files = Files(self._calls)
        self.batches = Batches(self._calls, self.files)

    @property
    def url(self) -> str:
        return self._http.url

    # Jobs

    def submit(
        self, document: Mapping[str, Any], *, idempotency_key: str = "", tokens: Mapping[str, str] | None = None
    ) -> Submitted:
        """Submit a job. A broken connection is retried without creating a second job; a busy server is waited for.

        ``tokens`` open the user's own storage: those of ``TOKEN_HEADERS``.
        """
        headers = {"Idempotency-Key": idempotency_key or str(uuid.uuid4()), **forwarded(tokens)}
        return Submitted.of(self._calls.record("POST", "/v1/jobs", body=document, headers=headers))

    def apply(
        self, path: str, manifest: Mapping[str, Any], *, warn: Callable[[str], None] | None = None
    ) -> tuple[dict[str, Any], bool]:
        """Create or update the Kubernetes resource at this path; returns the resource, and whether it was created.

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
        """Run all checks of a submission without submitting: the plan and the warnings."""
        query, headers = query_of(dry_run="true"), forwarded(tokens)
        return cast(
            "records.DryRun", self._calls.record("POST", "/v1/jobs", query=query, body=document, headers=headers)
        )

    def get(self, job_id: str, *, patience: RetryPolicy | None = None) -> Job:
        """``patience`` overrides the client's retry policy; use ``NO_RETRY`` for callers that poll themselves."""
        return Job.of(Calls(self._http, patience or self._calls.patience).record("GET", _job(job_id)))

    def find(self, handle: str) -> Job:
        """The job with this id or name, or whose id ends so; `@last` is the newest that this key submitted.

        Raises NotFound, and AmbiguousHandle for a handle of several jobs.
        """
        return find(self._calls, handle)

    def list(
        self, *, status: Iterable[str] = (), labels: Mapping[str, str] | None = None, **filters: Any
    ) -> Iterator[Job]:
        """Jobs that match all filters, newest first, page after page.

        ``filters``: ``queue``, ``project``, ``name`` (its beginning), ``training_type``, ``framework``,
        ``parent_job_id``, ``sweep_id``, ``kind``, ``created_by`` (the id of a key, or `me`), ``created_after``,
        ``created_before``, ``finished_after``, ``finished_before``, ``handle`` (as for `find`), ``order_by``.
        """
        return map(Job.of, self._calls.pages("/v1/jobs", "jobs", _filters(status, labels, filters)))

    def count(self, *, status: Iterable[str] = (), labels: Mapping[str, str] | None = None, **filters: Any) -> int:
        """The number of jobs that match all filters, up to 10,000."""
        query = [*_filters(status, labels, filters), ("page_size", 1)]
        return int(self._calls.record("GET", "/v1/jobs", query=query)["total_count"])

    def change(
        self,
        job_id: str,
        *,
        priority: int | None = None,
        labels: Mapping[str, str] | None = None,
        preemptible: bool | None = None,
    ) -> Job:
        """Change a job that has not ended; ``labels`` replace all existing ones."""
        body = without_unset(priority=priority, labels=labels, preemptible=preemptible)
        return Job.of(self._calls.record("PATCH", _job(job_id), body=body))

    def delete(self, job_id: str, *, artifacts: bool = False) -> None:
        """Delete an ended job; with ``artifacts`` also its files."""
        self._calls.send("DELETE", _job(job_id), query=query_of(artifacts="true" if artifacts else ""))

    def cancel(self, job_id: str, *, reason: str = "") -> Job:
        return self._verb(job_id, "cancel", {"reason": reason})

    def preempt(self, job_id: str, *, reason: str = "") -> Job:
        """Have a running job save and release its devices, for administrators; ``on_preemption`` says what follows."""
        return self._verb(job_id, "preempt", {"reason": reason})

    def pause(self, job_id: str, *, save_checkpoint: bool = True, force: bool = False) -> Job:
        """Save and stop until it is resumed; ``wait_paused`` waits for it. Raises Conflict when it cannot save.

        Without ``save_checkpoint`` it is stopped at once; with ``force`` also when the checkpoint cannot be saved.
        """
        return self._verb(job_id, "pause", {"save_checkpoint": save_checkpoint, **without_unset(force=force or None)})

    def resume(self, job_id: str, *, checkpoint_id: str = "", from_best: bool = False) -> Job:
        """Resume a paused job: where it stopped, from one of its checkpoints, or from its best one.

        One that has not stopped for its pause yet trains on.
        """
        return self._verb(
            job_id, "resume", {"checkpoint_id": checkpoint_id, **without_unset(from_best=from_best or None)}
        )

    def retry(
        self,
        job_id: str,
        *,
        checkpoint_id: str = "",
        from_start: bool = False,
        resources: Mapping[str, Any] | None = None,
        roles: Sequence[Mapping[str, Any]] = (),
        tokens: Mapping[str, str] | None = None,
    ) -> Job:
        """Retry an ended job as a new job, by default from its newest checkpoint.

        ``resources`` override entries of its ``resource_config``, ``roles`` the ``count`` and ``resource_config`` of
        those whose ``role`` they name; ``tokens`` as in ``submit``, where the earlier ones have expired. Returns the
        new job.
        """
        body: dict[str, Any] = {"checkpoint_id": checkpoint_id, "from_start": from_start}
        if resources:
            body |= {"modify_resources": True, "new_resource_config": resources}
        if roles:
            body |= {"modify_resources": True, "new_tasks": [*roles]}
        return Job.of(self._calls.record("POST", f"{_job(job_id)}/retry", body=body, headers=forwarded(tokens)))

    def checkpoint(self, job_id: str) -> Job:
        """Request a checkpoint now, without stopping."""
        return self._verb(job_id, "checkpoint", {})

    def wait(self, job_id: str, *, timeout_seconds: float = float("inf"), poll_seconds: float = 1.0) -> Job:
        """The job once it has ended. Raises TimeoutError after a last poll at the deadline.

        Retries while the server is away or busy for up to a minute, but not beyond the deadline.
        """
        return self._wait(job_id, lambda job: job.is_terminal, "ended", timeout_seconds, poll_seconds)

    def wait_paused(self, job_id: str, *, timeout_seconds: float = float("inf"), poll_seconds: float = 0.5) -> Job:
        """The job once no pause is pending: it is PAUSED, has ended, or continues because its checkpoint could not
        be saved (event ``job.pause_failed``) or the pause was taken back. Raises TimeoutError.
        """
        return self._wait(job_id, lambda job: job.requested is None, "paused", timeout_seconds, poll_seconds)

    def wait_running(self, job_id: str, *, timeout_seconds: float = float("inf"), poll_seconds: float = 0.5) -> Job:
        """The job once it has started to work, has ended, or is paused again. Raises TimeoutError."""
        return self._wait(job_id, lambda job: job.status in _STARTED, "started", timeout_seconds, poll_seconds)

    def _wait(
        self, job_id: str, happened: Callable[[Job], bool], what: str, timeout_seconds: float, poll_seconds: float
    ) -> Job:
        return poll(
            lambda most_seconds: Job.of(self._http.json("GET", _job(job_id), most_seconds=most_seconds)),
            happened,
            f"job {job_id} has not {what}",
            timeout_seconds=timeout_seconds,
            poll_seconds=poll_seconds,
        )

    # Job data

    def events(self, job_id: str, *, newest_first: bool = False) -> Iterator[records.Event]:
        """The job's history, oldest first unless ``newest_first``."""
        query = query_of(order_by="-created_at" if newest_first else "")
        return cast("Iterator[records.Event]", self._calls.pages(f"{_job(job_id)}/events", "events", query))

    def metrics(
        self,
        job_id: str,
        *,
        names: Iterable[str] = (),
        since_step: int | None = None,
        from_step: int | None = None,
        to_step: int | None = None,
        max_points: int | None = None,
    ) -> records.Metrics:
        """Series of points, thinned to ``max_points`` each, of the steps above ``since_step`` or of a range."""
        steps = {"since_step": since_step, "from_step": from_step, "to_step": to_step}
        query = query_of(names=",".join(as_list(names)), max_points=max_points, **steps)
        return cast("records.Metrics", self._calls.record("GET", f"{_job(job_id)}/metrics", query=query))

    def follow_events(self, job_id: str, *, last_id: str = "") -> Iterator[StreamEvent]:
        """The history and its additions, until the job has ended."""
        return self._stream(f"{_job(job_id)}/events", [], last_id)

    def follow_metrics(self, job_id: str, *, names: Iterable[str] = (), last_id: str = "") -> Iterator[StreamEvent]:
        return self._stream(f"{_job(job_id)}/metrics/stream", query_of(names=",".join(as_list(names))), last_id)

    def checkpoints(self, job_id: str) -> records.Checkpoints:
        return cast("records.Checkpoints", self._calls.record("GET", f"{_job(job_id)}/checkpoints")["checkpoints"])

    def attempts(self, job_id: str) -> records.Attempts:
        return cast("records.Attempts", self._calls.record("GET", f"{_job(job_id)}/attempts")["attempts"])

    def report(self, job_id: str) -> records.Report:
        """After the end: model hash, final metrics, compute time. Raises NotFound until then."""
        return cast("records.Report", self._calls.record("GET", f"{_job(job_id)}/report"))

    def artifacts(self, job_id: str, *, kind: str = "") -> records.Artifacts:
        """The files of the model; ``kind`` selects others: nodes, tensorboard, wandb, diagnostics or all."""
        path, query = f"{_job(job_id)}/artifacts", query_of(kind=kind)
        return cast("records.Artifacts", self._calls.record("GET", path, query=query)["artifacts"])

    def tensorboard(self, job_id: str) -> dict[str, str]:
        """``url`` and ``token`` of the job's TensorBoard. Raises NotFound where none is served."""
        return self._calls.record("GET", f"{_job(job_id)}/tensorboard")

    def compare(
        self,
        job_ids: Iterable[str],
        *,
        metrics: Iterable[str] = (),
        by: Literal["step", "seconds", "tokens"] = "step",
        max_points: int | None = None,
    ) -> records.Comparison:
        """What differs in the documents of 2 to 20 jobs, their final and best metrics, and their curves.

        ``by`` is the axis of the curves, ``max_points`` bounds each. Without ``metrics``: the 20 that most jobs have.
        """
        body = {"jobs": as_list(job_ids), "metrics": as_list(metrics), "by": by, **without_unset(max_points=max_points)}
        return cast("records.Comparison", self._calls.record("POST", "/v1/compare", body=body))

    def download(self, job_id: str, path: str, to: Path, *, sha256: str = "") -> Path:
        """Save one artifact as the file ``to``, which appears when it is complete and its hash is right.

        A broken download is resumed, also by a later call. ``sha256`` is the hash that ``artifacts`` lists.
        """
        url = f"{_job(job_id)}/artifacts/" + "/".join(map(quote, path.split("/")))
        return download(self._calls, url, to, sha256=sha256)

    # The rest

    def cluster(self) -> dict[str, Any]:
        """Nodes and jobs by state, devices by type, queues, coordinators."""
        return self._calls.record("GET", "/v1/cluster")

    def training_types(self) -> records.TrainingTypes:
        """The training types with all their hyperparameters."""
        return cast("records.TrainingTypes", self._calls.record("GET", "/v1/training-types")["training_types"])

    def error_types(self) -> records.ErrorTypes:
        """Why jobs fail."""
        return cast("records.ErrorTypes", self._calls.record("GET", "/v1/error-types")["error_types"])

    def is_ready(self) -> bool:
        """Whether database, broker and a coordinator are available."""
        try:
            self._http.open("GET", "/health/ready").close()
        except ClientError:
            return False
        return True

    def _verb(self, job_id: str, verb: str, body: Mapping[str, Any]) -> Job:
        return Job.of(self._calls.record("POST", f"{_job(job_id)}/{verb}", body=body))

    def _stream(self, path: str, query: Query, last_id: str) -> Iterator[StreamEvent]:
        return self._calls.stream(path, query, last_id=last_id)


def _filters(
    status: Iterable[str], labels: Mapping[str, str] | None, filters: Mapping[str, Any]
) -> list[tuple[str, Any]]:
    # Labels not by query_of: an empty value is a valid label value.
    wanted = [(f"labels.{name}", value) for name, value in (labels or {}).items()]
    return [*query_of(status=as_list(status)), *wanted, *query_of(**filters)]


def _job(job_id: str) -> str:
    return f"/v1/jobs/{quote(job_id)}"


def _text_of_warning(header: str) -> str:
    """Of `299 - "text"`, in which quotes and backslashes are escaped."""
    quoted = header.partition('"')[2].removesuffix('"')
    return re.sub(r"\\(.)", r"\1", quoted)
