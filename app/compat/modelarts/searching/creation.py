"""Creating a training job with policies.auto_search: a sweep, whose trials are jobs."""

from collections.abc import Callable, Mapping
from typing import Any

from app.compat.modelarts import lookup
from app.compat.modelarts.fields import TENSORBOARD, wants_tensorboard
from app.compat.modelarts.searching.searches import search_of
from app.compat.modelarts.to_native import DIALECT, Native, alias_of, stored
from app.compat.sweep_naming import complete
from app.http.context import caller, plane
from app.http.envelope import Reply
from app.http.idempotency import ReplyRecorder
from app.schemas.spec.field_verdicts import warning
from app.services.rows import Session
from app.services.sweeps import creation
from app.services.sweeps.creation import CreatedSweep, SweepOrigin


def create(project_id: str, body: Mapping[str, Any], translate: Callable[[Mapping[str, Any]], Native]) -> Reply:
    """Raises InvalidRequest, and Conflict when a training job has its name."""
    native, search = search_of(body, translate)
    name = body["metadata"]["name"]
    kept = {**stored(body), "name": name, "parameters": dict(search.names), "of_trials": {}}
    origin = SweepOrigin(
        foreign={DIALECT: kept},
        alias=alias_of(project_id, name),
        warnings=[*search.warnings, *native.warnings, *_no_board(body)],
    )

    def shown(session: Session, created: CreatedSweep) -> Reply:
        warnings = [search.naming.line(line) if line.startswith("job.") else line for line in created.warnings]
        return Reply(lookup.shown_new_search(session, created.sweep), 201, warnings=warnings)

    answering = ReplyRecorder(shown)
    with search.naming.errors():
        creation.create(
            plane(), caller(), search.spec, complete=complete, project=project_id, origin=origin, on_written=answering
        )
    return answering.reply


def _no_board(body: Mapping[str, Any]) -> list[str]:
    field = f"metadata.annotations.{TENSORBOARD}"
    return [warning(field, "a search has none; its trials are compared")] if wants_tensorboard(body["metadata"]) else []
