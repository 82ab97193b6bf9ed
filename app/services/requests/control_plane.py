"""What the use cases of the API are given: made once for each process and passed down."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.errors import CannotFit
from app.domain.scheduling.resources import NodeCapacity, Request
from app.domain.spec.locations.paths import ReadingRules
from app.domain.spec.model import JobDocument
from app.domain.sweeps.rules.limits import SweepLimits
from app.models import Job
from app.security.secrets import SecretBox
from app.storage.storage import Storage
from config.files import FilesSettings


class Rings(Protocol):
    """Wake-ups for other processes: they never block, never raise, and may get lost."""

    def ring_admit(self, job_id: str, queue: str, priority: int) -> None: ...

    def nudge(self, job_id: str, node: str) -> None: ...


class Capacity(Protocol):
    """What a job requests, compared with what the nodes have."""

    def capacities(self, session: Session) -> Sequence[NodeCapacity]: ...

    def capacities_now(self, session: Session) -> Sequence[NodeCapacity]: ...

    def unused_gpus(self, session: Session, document: JobDocument, request: Request) -> list[str]: ...

    def request_that_waits(
        self, session: Session, document: JobDocument, project: str
    ) -> tuple[Request, CannotFit | None]: ...


class StartEstimates(Protocol):
    """How long a job that is submitted now will wait, in seconds; None when unknown."""

    def of_new(
        self, session: Session, request: Request, *, queue: str, priority: int, project: str, preemptible: bool
    ) -> float | None: ...

    def of_several(
        self,
        session: Session,
        request: Request,
        count: int,
        *,
        queue: str,
        priority: int,
        project: str,
        preemptible: bool,
    ) -> list[float | None]: ...


class SubmissionLimit(Protocol):
    """How many jobs of a project may wait; raises QuotaExceeded when there are as many."""

    def refuse_one_too_many(self, session: Session, project: str) -> None: ...


@dataclass(frozen=True, kw_only=True)
class ControlPlane:
    db: Database
    dispatcher: Rings
    storage: Storage
    box: SecretBox
    reading: ReadingRules
    inventory: Capacity
    estimates: StartEstimates
    waiting_limit: SubmissionLimit
    sweep_limits: SweepLimits
    files: FilesSettings
    secrets_dir: Path | None  # secrets that the operator stores for projects

    def nudge(self, job: Job) -> None:
        """Wake the nodes that run the job: its supervisors read the request at once."""
        for node in job.node_names:
            self.dispatcher.nudge(job.id, node)
