"""Sweeps and their trials."""

from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import Any

from flask import Blueprint, Response
from sqlalchemy.orm import Session

from app.api.forwarding import FORWARDED, forwarded_tokens
from app.domain.sweeps.spec import SweepSpec
from app.domain.sweeps.states import TERMINAL
from app.http.context import base_path, caller, plane
from app.http.envelope import Reply
from app.http.event_feed import stream_of_events
from app.http.idempotency import ReplyRecorder
from app.http.operation import operation
from app.http.pagination import page_data, page_request
from app.http.sse import wants_events
from app.http.sweep_documents import complete
from app.models import Sweep, SweepEvent
from app.schemas.documents import NothingSchema
from app.schemas.jobs import SubmitQuerySchema
from app.schemas.results.events import EventQuerySchema, EventSchema
from app.schemas.tuning.answers import (
    BestAnswerSchema,
    CreatedSweepSchema,
    DeletedSweepSchema,
    ReplaySchema,
    SweepPlanSchema,
    SweepSchema,
    TrialSchema,
)
from app.schemas.tuning.sweeps import (
    AddTrialSchema,
    BestQuerySchema,
    CancelSweepSchema,
    ChangeSweepSchema,
    CreateSweepSchema,
    DeleteSweepQuerySchema,
    ForkSweepSchema,
    PauseSweepSchema,
    ReplayQuerySchema,
    SweepQuerySchema,
    TrialQuerySchema,
)
from app.security.permissions import Permission
from app.services.sweeps import commands, creation, forks, history, lookup, trial_commands
from app.services.sweeps.creation import CreatedSweep
from app.services.sweeps.reading import best, listing, plans, replay
from app.services.sweeps.reading.listing import TrialDetails
from app.services.sweeps.search.suggestions import REQUEST_SLOTS, Suggestions

blueprint = Blueprint("sweeps", __name__)
_SWEEP, _TRIAL, _EVENT, _PLAN = SweepSchema(), TrialSchema(), EventSchema(), SweepPlanSchema()
# A control request that takes no fields.
_request = partial(operation, permission=Permission.MANAGE, body=NothingSchema, body_optional=True)
_BEST, _REPLAY, _DELETED = BestAnswerSchema(), ReplaySchema(), DeletedSweepSchema()


@blueprint.post("/sweeps")
@operation(
    "Create a sweep",
    permission=Permission.MANAGE,
    query=SubmitQuerySchema,
    body=CreateSweepSchema,
    answer=CreatedSweepSchema,
    status=201,
    also={200: SweepPlanSchema},
    headers=FORWARDED,
)
def create_sweep(query: dict[str, Any], body: SweepSpec) -> Reply:
    wanted: dict[str, Any] = {"project": query.get("project"), "forwarded": forwarded_tokens(), "complete": complete}
    if query["dry_run"]:
        # Not stored under an Idempotency-Key: a dry run has no effect to repeat.
        checked = creation.check(plane(), caller(), body, **wanted)
        with closing(Suggestions(slots=REQUEST_SLOTS)) as suggestions:
            plan = plans.plan(suggestions, checked)
        return Reply({**_PLAN.dump(plan), "valid": True})
    recorder = ReplyRecorder(_created)
    creation.create(plane(), caller(), body, **wanted, on_written=recorder)
    return recorder.reply


@blueprint.get("/sweeps")
@operation("List sweeps", permission=Permission.VIEW, query=SweepQuerySchema, answer=SweepSchema, items="sweeps")
def list_sweeps(query: dict[str, Any]) -> dict[str, Any]:
    asked = {**query, "created_by": caller().key_id} if query.get("created_by") == "me" else query
    with plane().db.read() as session:
        return page_data("sweeps", _SWEEP, listing.page(session, caller(), asked, page_request(query)), query)


@blueprint.get("/sweeps/<sweep_id>")
@operation("Get a sweep", permission=Permission.VIEW, answer=SweepSchema)
def get_sweep(sweep_id: str) -> Reply:
    with plane().db.read() as session:
        found = listing.details(session, lookup.find(session, caller(), sweep_id))
        return Reply(_SWEEP.dump(listing.with_forecast(session, found)))


@blueprint.patch("/sweeps/<sweep_id>")
@operation("Update a sweep", permission=Permission.MANAGE, body=ChangeSweepSchema, answer=SweepSchema)
def change_sweep(sweep_id: str, body: dict[str, Any]) -> Reply:
    return _commanded(partial(commands.change, plane(), caller(), sweep_id, body), 200)


@blueprint.delete("/sweeps/<sweep_id>")
@operation(
    "Delete a finished sweep; its jobs stay unless they are to be deleted, too",
    permission=Permission.MANAGE,
    query=DeleteSweepQuerySchema,
    status=204,
    also={200: DeletedSweepSchema},
)
def delete_sweep(sweep_id: str, query: dict[str, Any]) -> Reply:
    deleted = commands.delete(plane(), caller(), sweep_id, jobs=query["jobs"])
    return Reply(_DELETED.dump(deleted)) if query["jobs"] else Reply(None, 204)


@blueprint.post("/sweeps/<sweep_id>/pause")
@operation(
    "Pause a sweep until it is resumed",
    permission=Permission.MANAGE,
    body=PauseSweepSchema,
    body_optional=True,
    answer=SweepSchema,
)
def pause_sweep(sweep_id: str, body: dict[str, Any]) -> Reply:
    finishes = body["trials"] == "finish"
    return _commanded(partial(commands.pause, plane(), caller(), sweep_id, finish_trials=finishes), 200)


@blueprint.post("/sweeps/<sweep_id>/resume")
@_request("Resume a paused sweep", answer=SweepSchema)
def resume_sweep(sweep_id: str, body: dict[str, Any]) -> Reply:
    del body
    return _commanded(partial(commands.resume, plane(), caller(), sweep_id), 200)


@blueprint.post("/sweeps/<sweep_id>/stop")
@_request("Make no new trial and let the running ones end", answer=SweepSchema)
def stop_sweep(sweep_id: str, body: dict[str, Any]) -> Reply:
    del body
    return _commanded(partial(commands.stop, plane(), caller(), sweep_id), 200)


@blueprint.post("/sweeps/<sweep_id>/cancel")
@operation(
    "Cancel a sweep and its trials",
    permission=Permission.MANAGE,
    body=CancelSweepSchema,
    body_optional=True,
    answer=SweepSchema,
)
def cancel_sweep(sweep_id: str, body: dict[str, Any]) -> Reply:
    return _commanded(partial(commands.cancel, plane(), caller(), sweep_id, reason=body["reason"]), 200)


@blueprint.post("/sweeps/<sweep_id>/fork")
@operation(
    "Create a sweep that knows what this one has found",
    permission=Permission.MANAGE,
    body=ForkSweepSchema,
    body_optional=True,
    answer=CreatedSweepSchema,
    status=201,
)
def fork_sweep(sweep_id: str, body: dict[str, Any]) -> Reply:
    recorder = ReplyRecorder(_created)
    forks.fork(plane(), caller(), sweep_id, body, complete=complete, on_written=recorder)
    return recorder.reply


@blueprint.get("/sweeps/<sweep_id>/trials")
@operation(
    "List the trials of a sweep", permission=Permission.VIEW, query=TrialQuerySchema, answer=TrialSchema, items="trials"
)
def list_trials(sweep_id: str, query: dict[str, Any]) -> dict[str, Any]:
    with plane().db.read() as session:
        sweep = lookup.find(session, caller(), sweep_id)
        return page_data("trials", _TRIAL, listing.trials(session, sweep, query, page_request(query)), query)


@blueprint.post("/sweeps/<sweep_id>/trials")
@operation(
    "Add a trial with chosen values", permission=Permission.MANAGE, body=AddTrialSchema, answer=TrialSchema, status=201
)
def add_trial(sweep_id: str, body: dict[str, Any]) -> Reply:
    return _on_trial(partial(trial_commands.add, plane(), caller(), sweep_id, body["values"]), 201)


@blueprint.get("/sweeps/<sweep_id>/trials/<number>")
@operation("Get a trial", permission=Permission.VIEW, answer=TrialSchema)
def get_trial(sweep_id: str, number: str) -> Reply:
    with plane().db.read() as session:
        sweep = lookup.find(session, caller(), sweep_id)
        return Reply(_TRIAL.dump(listing.one_trial(session, sweep, lookup.trial_number(number))))


@blueprint.post("/sweeps/<sweep_id>/trials/<number>/stop")
@_request("End a running trial early; what it measured counts", answer=TrialSchema)
def stop_trial(sweep_id: str, number: str, body: dict[str, Any]) -> Reply:
    del body
    return _on_trial(partial(trial_commands.stop, plane(), caller(), sweep_id, lookup.trial_number(number)), 200)


@blueprint.post("/sweeps/<sweep_id>/trials/<number>/promote")
@_request("Exempt a running trial from early stopping", answer=TrialSchema)
def promote_trial(sweep_id: str, number: str, body: dict[str, Any]) -> Reply:
    del body
    return _on_trial(partial(trial_commands.promote, plane(), caller(), sweep_id, lookup.trial_number(number)), 200)


@blueprint.get("/sweeps/<sweep_id>/best")
@operation("Get the best trials of a sweep", permission=Permission.VIEW, query=BestQuerySchema, answer=BestAnswerSchema)
def best_trials(sweep_id: str, query: dict[str, Any]) -> Reply:
    with plane().db.read() as session:
        sweep = lookup.find(session, caller(), sweep_id)
        found = best.best(session, sweep, top=query["top"], with_document=query["document"], with_results=True)
        return Reply(_BEST.dump({"trials": found}))


@blueprint.get("/sweeps/<sweep_id>/replay")
@operation(
    "Compute suggestions and decisions again", permission=Permission.VIEW, query=ReplayQuerySchema, answer=ReplaySchema
)
def replay_sweep(sweep_id: str, query: dict[str, Any]) -> Reply:
    with plane().db.snapshot() as session:
        stored = replay.read(session, lookup.find(session, caller(), sweep_id), **query)
    with closing(Suggestions(slots=REQUEST_SLOTS)) as suggestions:
        found = replay.replay(stored, suggestions)
    return Reply({**_REPLAY.dump(found), "is_equal": not found.differences})


@blueprint.get("/sweeps/<sweep_id>/events")
@operation(
    "List or follow the events of a sweep",
    permission=Permission.VIEW,
    query=EventQuerySchema,
    answer=EventSchema,
    items="events",
    media="json or events",
)
def list_sweep_events(sweep_id: str, query: dict[str, Any]) -> dict[str, Any] | Response:
    db = plane().db
    with db.read() as session:
        lookup.find(session, caller(), sweep_id)
        if not wants_events(by_default=False):
            return page_data("events", _EVENT, history.page(session, sweep_id, page_request(query)), query)
    return stream_of_events(db, partial(_newer_events, sweep_id))


def _newer_events(sweep_id: str, session: Session, seq: int) -> tuple[bool, Sequence[SweepEvent]]:
    # The state is read before the events: the final one commits together with the last event.
    sweep = session.get(Sweep, sweep_id)
    has_ended = sweep is None or sweep.status in TERMINAL
    return has_ended, history.events_after(session, sweep_id, seq)


def _created(_session: Session, created: CreatedSweep) -> Reply:
    sweep = created.sweep
    data = {
        "sweep_id": sweep.id,
        "status": sweep.status,
        "message": f"{sweep.name} makes its first trial as soon as it can start",
        "warnings": list(created.warnings),
    }
    return Reply(data, 201, location=f"{base_path()}/sweeps/{sweep.id}")


def _commanded(command: Callable[..., Sweep], status: int) -> Reply:
    recorder = ReplyRecorder(lambda session, sweep: Reply(_SWEEP.dump(listing.details(session, sweep)), status))
    command(on_written=recorder)
    return recorder.reply


def _on_trial(command: Callable[..., None], status: int) -> Reply:
    base = base_path()

    def shown(_session: Session, written: tuple[Sweep, TrialDetails]) -> Reply:
        sweep, details = written
        location = f"{base}/sweeps/{sweep.id}/trials/{details.trial.number}" if status == 201 else None
        return Reply(_TRIAL.dump(details), status, location=location)

    recorder = ReplyRecorder(shown)
    command(on_written=recorder)
    return recorder.reply
