"""`trainyard cancel`, `checkpoint`, `pause`, `resume`, `retry` and `compare`, over HTTP."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, cast

from app.cli.client.connection import server
from app.cli.job_commands import job_commands
from config.settings import client_tokens
from trainyard.client import Client


class ServerJobs:
    """Jobs of the caller's projects. Raises ClientError when the server refuses a request."""

    follow_hint = "Follow it with: trainyard watch {}"

    def __init__(self, client: Client) -> None:
        self._client = client

    def cancel(self, job_id: str, *, reason: str) -> Mapping[str, Any]:
        return self._client.cancel(job_id, reason=reason).data

    def checkpoint(self, job_id: str) -> Mapping[str, Any]:
        return self._client.checkpoint(job_id).data

    def pause(self, job_id: str, *, saves: bool, force: bool) -> Mapping[str, Any]:
        return self._client.pause(job_id, save_checkpoint=saves, force=force).data

    def wait_paused(self, job_id: str) -> Mapping[str, Any]:
        return self._client.wait_paused(job_id).data

    def resume(self, job_id: str, *, checkpoint_id: str, from_best: bool) -> Mapping[str, Any]:
        return self._client.resume(job_id, checkpoint_id=checkpoint_id, from_best=from_best).data

    def retry(
        self, job_id: str, *, checkpoint_id: str, from_start: bool, resources: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        return self._client.retry(
            job_id, checkpoint_id=checkpoint_id, from_start=from_start, resources=resources, tokens=client_tokens()
        ).data

    def compare(self, job_ids: Sequence[str], *, metrics: Sequence[str], by: str) -> Mapping[str, Any]:
        return self._client.compare(job_ids, metrics=metrics, by=cast("Literal['step', 'seconds']", by))


@contextmanager
def _server_jobs() -> Iterator[ServerJobs]:
    with server() as client:
        yield ServerJobs(client)


cancel, checkpoint, pause, resume, retry, compare = job_commands(_server_jobs)
