"""`trainyard jobs cancel`, `checkpoint`, `pause`, `resume`, `retry` and `compare`, on the database."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from app.cli.admin.administrator import ADMINISTRATOR
from app.cli.admin.control_plane import admin_plane
from app.cli.admin.job_admin import first_message, job_document
from app.cli.job_commands import POLL_SECONDS, job_commands
from app.domain.errors import InvalidRequest

if TYPE_CHECKING:
    from app.services.requests.control_plane import ControlPlane


class DatabaseJobs:
    """Jobs of every project."""

    follow_hint = ""

    def __init__(self, plane: "ControlPlane") -> None:
        self._plane = plane

    def cancel(self, job_id: str, *, reason: str) -> Mapping[str, Any]:
        from app.services.jobs import commands

        commands.cancel(self._plane, ADMINISTRATOR, job_id, reason=reason)
        return job_document(self._plane, job_id)

    def checkpoint(self, job_id: str) -> Mapping[str, Any]:
        from app.services.jobs import commands

        commands.save_now(self._plane, ADMINISTRATOR, job_id)
        return job_document(self._plane, job_id)

    def pause(self, job_id: str, *, saves: bool, force: bool) -> Mapping[str, Any]:
        from app.services.jobs import commands

        commands.pause(self._plane, ADMINISTRATOR, job_id, saves=saves, force=force)
        return job_document(self._plane, job_id)

    def wait_paused(self, job_id: str) -> Mapping[str, Any]:
        while (job := job_document(self._plane, job_id))["requested"] is not None:
            time.sleep(POLL_SECONDS)
        return job

    def resume(self, job_id: str, *, checkpoint_id: str, from_best: bool) -> Mapping[str, Any]:
        from app.services.jobs import commands

        commands.resume(self._plane, ADMINISTRATOR, job_id, checkpoint_id=checkpoint_id, from_best=from_best)
        return job_document(self._plane, job_id)

    def retry(
        self, job_id: str, *, checkpoint_id: str, from_start: bool, resources: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        from marshmallow import ValidationError

        from app.schemas.jobs import RetrySchema, SubmitJobSchema
        from app.services.jobs import retries
        from app.services.jobs.retries import Retry

        try:
            given = RetrySchema().load({"new_resource_config": dict(resources)})
        except ValidationError as error:
            raise click.UsageError(f"--resource: {first_message(error.messages)}") from error
        wanted = Retry(checkpoint_id=checkpoint_id, from_start=from_start, resources=given["new_resource_config"])
        child = retries.retry(self._plane, ADMINISTRATOR, job_id, wanted, complete=SubmitJobSchema().load)
        return job_document(self._plane, child.id)

    def compare(self, job_ids: Sequence[str], *, metrics: Sequence[str], by: str) -> Mapping[str, Any]:
        from marshmallow import ValidationError

        from app.schemas.comparisons import CompareJobsSchema, ComparisonSchema
        from app.services.jobs import comparison
        from app.services.jobs.comparison import ComparisonRequest

        try:
            asked = CompareJobsSchema().load({"jobs": [*job_ids], "metrics": [*metrics], "by": by})
        except ValidationError as error:
            raise click.UsageError(f"{next(iter(error.messages))}: {first_message(error.messages)}") from error
        with self._plane.db.snapshot() as session:
            found = comparison.compare(session, ADMINISTRATOR, ComparisonRequest(**asked))
            return dict(ComparisonSchema().dump(found))


@contextmanager
def _database_jobs() -> Iterator[DatabaseJobs]:
    with admin_plane() as plane:
        try:
            yield DatabaseJobs(plane)
        except InvalidRequest as error:
            raise click.UsageError(error.message) from error


cancel, checkpoint, pause, resume, retry, compare = job_commands(_database_jobs)
