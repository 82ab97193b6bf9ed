"""What a change or a deletion of a TrainingJob acts on: a job, or a sweep."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from app.compat.ome.api import lookup
from app.compat.ome.sweep_objects import shown_object, shown_version
from app.compat.ome.to_native import DIALECT
from app.domain.lifecycle.states import TERMINAL
from app.domain.sweeps.states import TERMINAL as SWEEP_ENDED
from app.http.context import caller, plane
from app.services.jobs import dialect_notes
from app.services.jobs.control import commands
from app.services.jobs.details import JobDetails
from app.services.rows import Session
from app.services.sweeps import commands as sweep_commands
from app.services.sweeps import foreign


@dataclass(frozen=True, kw_only=True)
class Target:
    """``ended_as``: its state if it has ended; ``version`` of its row."""

    shown: dict[str, Any]
    shown_version: str
    version: int
    ended_as: str
    note: Callable[..., None]
    suspend: Callable[[], object]
    resume: Callable[[], object]
    withdraw: Callable[[], None]


def target(session: Session, namespace: str, name: str) -> Target:
    """Raises NotFound."""
    found = lookup.find_either(session, namespace, name)
    row = found.job if isinstance(found, JobDetails) else found.sweep
    ended = TERMINAL if isinstance(found, JobDetails) else SWEEP_ENDED
    of_row: tuple[Any, ...] = (plane(), caller(), row.id)
    acts = _of_job(of_row) if isinstance(found, JobDetails) else _of_sweep(of_row)
    return Target(
        shown=shown_object(found),
        shown_version=shown_version(found),
        version=row.version,
        ended_as=str(row.status) if row.status in ended else "",
        **acts,
    )


def _of_job(of_row: tuple[Any, ...]) -> dict[str, Callable[..., Any]]:
    return {
        "note": partial(dialect_notes.note, *of_row, dialect=DIALECT),
        "suspend": partial(commands.pause, *of_row, force=True),
        "resume": partial(commands.resume, *of_row),
        "withdraw": partial(dialect_notes.withdraw, *of_row, dialect=DIALECT),
    }


def _of_sweep(of_row: tuple[Any, ...]) -> dict[str, Callable[..., Any]]:
    return {
        "note": partial(foreign.note, *of_row, dialect=DIALECT),
        "suspend": partial(sweep_commands.pause, *of_row, force=True),
        "resume": partial(sweep_commands.resume, *of_row),
        "withdraw": partial(foreign.withdraw, *of_row, dialect=DIALECT),
    }
