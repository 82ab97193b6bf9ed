"""Creating a TrainingJob with hyperParameterTuningConfig: a sweep, whose trials are jobs."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.compat.ome.api import lookup
from app.compat.ome.api.answers import object_reply
from app.compat.ome.searches import Search, search_of
from app.compat.ome.sweep_objects import object_of_sweep, of_trials
from app.compat.ome.to_native import DIALECT, Native
from app.compat.sweep_naming import complete
from app.http.context import caller, plane
from app.http.envelope import Reply
from app.http.idempotency import ReplyRecorder
from app.services.rows import Session
from app.services.sweeps import creation, foreign
from app.services.sweeps.creation import CreatedSweep, SweepOrigin


def create(namespace: str, kept: Mapping[str, Any], spec: Mapping[str, Any], native: Native, *, dry_run: bool) -> Reply:
    """``kept``: what is stored with the sweep. Raises InvalidRequest, and Conflict when a TrainingJob has its name."""
    search = search_of(native.document, spec["hyperParameterTuningConfig"])
    name = kept["name"]
    origin = SweepOrigin(
        foreign={DIALECT: {**kept, "parameters": dict(search.names), "of_trials": of_trials(name, kept["spec"])}},
        alias=lookup.alias_of(namespace, name),
        warnings=[*search.warnings, *native.warnings],
        secret_variables=native.secrets.keys(),
    )
    with search.naming.errors():
        if dry_run:
            return _previewed(namespace, search, spec, origin)
        answering = ReplyRecorder(_Answer(search, is_suspended=spec["suspend"]))
        creation.create(
            plane(), caller(), search.spec, complete=complete, project=namespace, origin=origin, on_written=answering
        )
    return object_reply(answering.reply.data, 201, answering.reply.warnings)


class _Answer:
    """The new TrainingJob, within the transaction that creates it."""

    def __init__(self, search: Search, *, is_suspended: bool) -> None:
        self._search, self._is_suspended = search, is_suspended

    def __call__(self, session: Session, created: CreatedSweep) -> Reply:
        if self._is_suspended:
            foreign.pause_new(session, caller(), created.sweep)
        found = object_of_sweep(foreign.shown_new(created.sweep))
        return Reply(found, 201, warnings=_retold(self._search, created.warnings))


def _previewed(namespace: str, search: Search, spec: Mapping[str, Any], origin: SweepOrigin) -> Reply:
    checked = creation.check(
        plane(), caller(), search.spec, complete=complete, project=namespace, secret_variables=origin.secret_variables
    )
    found = object_of_sweep(foreign.previewed(plane(), caller(), checked, origin))
    found["spec"]["suspend"] = spec["suspend"]
    return object_reply(found, 201, [*origin.warnings, *_retold(search, checked.warnings)])


def _retold(search: Search, warnings: Sequence[str]) -> list[str]:
    """Warnings about the native document, in the words of the manifest."""
    return [search.naming.line(line) if line.startswith("job.") else line for line in warnings]
