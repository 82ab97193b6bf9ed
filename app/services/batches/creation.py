"""Creating a batch: its row is written at once; a coordinator reads the file, checks the requests and runs jobs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.domain.batches.documents import job_document
from app.domain.batches.limits import HOUR_SECONDS, LONGEST_WINDOW_SECONDS
from app.domain.batches.states import ENDED
from app.domain.errors import InvalidRequest, LimitExceeded, NotFound
from app.domain.files import purposes
from app.domain.ids import FILE_ID, new_id
from app.domain.spec.inference import OPENAI_ENDPOINTS
from app.models import Batch, File
from app.models.base import utc_now
from app.models.insertion import fill
from app.security.permissions import Caller
from app.services.access import projects
from app.services.files import listing as files
from app.services.lifecycle import audit
from app.services.queues import queues
from app.services.requests.control_plane import ControlPlane
from app.services.requests.idempotency import OnWritten, not_stored

# Sections of a job document that a batch may give its jobs; `output` is the native one of POST /v1/inference.
PARTS = ("resource_config", "scheduling_config", "output")
_RETRY_FULL_SECONDS = 30


@dataclass(frozen=True, kw_only=True)
class NewBatch:
    """``tags``: OpenAI's metadata. ``parts``: sections of a job document, of PARTS."""

    input_file_id: str
    endpoint: str
    window_seconds: int
    tags: Mapping[str, str] = field(default_factory=dict)
    output_expires_seconds: int | None = None
    parts: Mapping[str, Any] = field(default_factory=dict)


def create(
    plane: ControlPlane,
    caller: Caller,
    new: NewBatch,
    *,
    project: str | None = None,
    on_written: OnWritten = not_stored,
) -> Batch:
    """Store a new batch that is VALIDATING. ``on_written`` is given the Batch.

    Raises InvalidRequest for what no batch may have, NotFound without the project or the file, and LimitExceeded while
    the project has as many that have not ended as it may.
    """
    _check(new)
    target = project or caller.home_project
    caller.require_project(target)
    with plane.db.write() as session:
        projects.hold(session, target)
        projects.visible(session, caller, target)
        _refuse_one_too_many(session, target, plane.files.max_live_batches)
        queues.require(session, _queue_of(new), field="scheduling_config.queue")
        # Locks the file until the row is there that keeps it from being deleted.
        _require_file(session, target, new.input_file_id)
        batch = _row(caller, new, target)
        session.add(batch)
        session.flush()
        audit.record(
            session,
            actor=caller.actor,
            action="batch.create",
            project=target,
            target=batch.id,
            message=f"{new.endpoint} for {new.input_file_id}",
        )
        on_written(session, batch)
    return batch


def _check(new: NewBatch) -> None:
    if new.endpoint not in OPENAI_ENDPOINTS:
        raise InvalidRequest(
            f"batches have requests to {', '.join(OPENAI_ENDPOINTS)}, and not to {new.endpoint[:64]}", field="endpoint"
        )
    if not HOUR_SECONDS <= new.window_seconds <= LONGEST_WINDOW_SECONDS:
        longest = LONGEST_WINDOW_SECONDS // HOUR_SECONDS
        raise InvalidRequest(f"a window has 1h to {longest}h", field="completion_window")
    least, most = purposes.SHORTEST_EXPIRY_SECONDS, purposes.LONGEST_EXPIRY_SECONDS
    if new.output_expires_seconds is not None and not least <= new.output_expires_seconds <= most:
        raise InvalidRequest(
            f"its files may expire {least} to {most} seconds after their creation", field="output_expires_after"
        )
    if foreign := next((name for name in new.parts if name not in PARTS), None):
        raise InvalidRequest(f"a batch gives its jobs {', '.join(PARTS)}, and not {foreign[:64]}", field=foreign[:64])


def _refuse_one_too_many(session: Session, project: str, most: int) -> None:
    """Several creations at the same time may exceed it a little."""
    query = select(func.count()).select_from(Batch).where(Batch.project == project, Batch.status.not_in(ENDED))
    if most and (live := session.scalar(query) or 0) >= most:
        raise LimitExceeded(
            f"the project {project} has {live} batches that have not ended, of at most {most} "
            "(TRAINYARD_FILES_MAX_LIVE_BATCHES); create this one when one has ended, or cancel one",
            retry_after_seconds=_RETRY_FULL_SECONDS,
        )


def _queue_of(new: NewBatch) -> str:
    document = job_document("", 0, input_file_id=new.input_file_id, task={}, serving={}, parts=new.parts)
    return document.scheduling_config.queue


def _require_file(session: Session, project: str, file_id: str) -> File:
    found = files.held(session, project, [file_id]) if FILE_ID.fullmatch(file_id) else []
    if not found:
        raise NotFound(f"no file {file_id[:64]}", field="input_file_id")
    file = found[0]
    if file.purpose != purposes.BATCH:
        raise InvalidRequest(
            f"{file.id} was uploaded for {file.purpose}, and the requests of a batch have the purpose "
            f"{purposes.BATCH}; upload it again with this one",
            field="input_file_id",
        )
    return file


def _row(caller: Caller, new: NewBatch, project: str) -> Batch:
    now = utc_now()
    batch = Batch(
        id=new_id("batch"),
        project=project,
        created_by=caller.key_id,
        submits_as=caller.key_id,
        input_file_id=new.input_file_id,
        endpoint=new.endpoint,
        window_seconds=new.window_seconds,
        tags=dict(new.tags),
        parts=dict(new.parts),
        output_expires_seconds=new.output_expires_seconds,
        created_at=now,
        updated_at=now,
        expires_at=now + timedelta(seconds=new.window_seconds),
    )
    fill(batch)
    return batch
