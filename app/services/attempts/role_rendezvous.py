"""What the parts of an attempt with roles tell each other, beside the gang's rendezvous, in the attempt's row.

Before the ranks start, each part writes where its instances can be reached; while they run, which of them have started,
and when those that are no sidecars have all ended well.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from app.database.engine import Database
from app.services.attempts import rendezvous
from app.services.attempts.work_orders import WorkOrder

PLACES, PROGRESS = "places", "roles"  # keys of Attempt.rendezvous, each with one entry for a part


@dataclass(frozen=True, kw_only=True)
class InstancePlace:
    """Where an instance can be reached: ``port`` is free for a server of its own, ``rank_port`` for its ranks."""

    role: str
    index: int
    address: str
    port: int
    rank_port: int


@dataclass(frozen=True, kw_only=True)
class PartProgress:
    started: frozenset[tuple[str, int]] = field(default_factory=frozenset)
    work_ended: bool = False


def report_places(db: Database, work: WorkOrder, places: Sequence[InstancePlace]) -> bool:
    """Write where this part's instances can be reached. Idempotent. Raises LeaseLost."""
    _write(db, work, PLACES, [asdict(each) for each in places])
    return True


def places(db: Database, work: WorkOrder) -> tuple[InstancePlace, ...]:
    """Those that the parts have written, in any order."""
    written = rendezvous.read(db, work).get(PLACES, {})
    return tuple(InstancePlace(**each) for part in written.values() for each in part)


def report_progress(db: Database, work: WorkOrder, progress: PartProgress) -> None:
    """Write how far this part's instances are. Idempotent. Raises LeaseLost."""
    _write(db, work, PROGRESS, {"started": sorted(progress.started), "work_ended": progress.work_ended})


def progress_of_parts(db: Database, work: WorkOrder) -> list[PartProgress]:
    """How far the instances of each part are."""
    written = rendezvous.read(db, work).get(PROGRESS, {})
    return [_progress(written.get(str(part), {})) for part in range(len(work.node_names))]


def started_roles(work: WorkOrder, parts: Iterable[PartProgress]) -> set[str]:
    """The roles of which every instance has started."""
    started = {key for part in parts for key in part.started}
    missing = {each.role for each in work.all_instances if (each.role, each.index) not in started}
    return {each.role for each in work.all_instances} - missing


def _progress(written: Mapping[str, Any]) -> PartProgress:
    started = frozenset((role, index) for role, index in written.get("started", ()))
    return PartProgress(started=started, work_ended=written.get("work_ended", False))


def _write(db: Database, work: WorkOrder, key: str, value: object) -> None:
    rendezvous.change(db, work, lambda state: {**state, key: {**state.get(key, {}), str(work.part): value}})
