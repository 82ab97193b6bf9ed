"""Routes of batches."""

from collections.abc import Sequence
from typing import Any

from flask import Blueprint

from app.compat.openai.batches.from_native import batch_of
from app.compat.openai.batches.schemas import (
    MOST_HOURS,
    REST,
    BatchesQuerySchema,
    BatchesSchema,
    BatchSchema,
    CreateBatchSchema,
)
from app.compat.openai.bodies import NO_BODY, fields_named, json_body, listed
from app.domain.batches.limits import HOUR_SECONDS
from app.domain.errors import BadSpec
from app.http.context import caller, plane
from app.http.envelope import Reply
from app.http.idempotency import ReplyRecorder
from app.http.operation import operation
from app.security.permissions import Permission
from app.services.batches import commands, creation, listing
from app.services.batches.creation import PARTS, NewBatch
from app.services.requests.pagination import PageRequest
from app.services.rows import Batch, Session

blueprint = Blueprint("openai_batches", __name__)
_QUEUE = "scheduling_config.queue"
_NAMES = {name: f"{REST}.{name}" for name in (*PARTS, _QUEUE)}


def _shown(session: Session, batch: Batch) -> Reply:
    return Reply(_objects(session, [batch])[0])


def _objects(session: Session, batches: Sequence[Batch]) -> list[dict[str, Any]]:
    ids = [batch.id for batch in batches]
    jobs, waits = listing.jobs_of(session, ids), listing.waits_of(session, ids)
    return [batch_of(batch, jobs.get(batch.id, ()), waits.get(batch.id, "")) for batch in batches]


@blueprint.post("/batches")
@operation(
    "Create a batch of requests", permission=Permission.MANAGE, answer=BatchSchema, **json_body(CreateBatchSchema)
)
def create_batch(body: dict[str, Any]) -> Reply:
    new = NewBatch(
        input_file_id=body["input_file_id"],
        endpoint=body["endpoint"],
        window_seconds=_window(body["completion_window"]),
        tags=body.get("metadata", {}),
        output_expires_seconds=body.get("output_expires_after", {}).get("seconds"),
        parts=body.get(REST, {}),
    )
    answering = ReplyRecorder(_shown)
    with fields_named(**_NAMES):
        creation.create(plane(), caller(), new, project=caller().home_project, on_written=answering)
    return answering.reply


@blueprint.get("/batches")
@operation("List batches, the newest first", permission=Permission.VIEW, query=BatchesQuerySchema, answer=BatchesSchema)
def list_batches(query: dict[str, Any]) -> Reply:
    after = (query["after"],) if "after" in query else None
    request = PageRequest(size=query["limit"], order=listing.NEWEST_FIRST, after=after)
    with plane().db.read() as session:
        page = listing.page(session, caller(), {}, request)
        found = _objects(session, page.items)
    return Reply(listed(found, has_more=page.next_after is not None))


@blueprint.get("/batches/<batch_id>")
@operation("Get a batch", permission=Permission.VIEW, answer=BatchSchema)
def get_batch(batch_id: str) -> Reply:
    with plane().db.read() as session:
        return _shown(session, listing.find(session, caller(), batch_id))


@blueprint.post("/batches/<batch_id>/cancel")
@operation(
    "Cancel a batch; what is answered stays in its files",
    permission=Permission.MANAGE,
    answer=BatchSchema,
    runs_again=True,  # it changes the state of a batch
    **NO_BODY,
)
def cancel_batch(batch_id: str, body: dict[str, Any]) -> Reply:
    del body  # it has no fields
    answering = ReplyRecorder(_shown)
    commands.cancel(plane(), caller(), batch_id, on_written=answering)
    return answering.reply


def _window(text: str) -> int:
    """Seconds of a window such as 24h, whose form is checked."""
    hours = int(text.removesuffix("h"))
    if hours > MOST_HOURS:
        raise BadSpec(f"is longer than {MOST_HOURS}h, the longest window", field="completion_window")
    return hours * HOUR_SECONDS
