"""Instances of roles in the work orders of an attempt, read from its row: where each runs, and how it ended."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from app.database.engine import Database
from app.models import Attempt
from app.services.lifecycle import transitions

Key = tuple[str, int]  # role, index


@dataclass(frozen=True, kw_only=True)
class WorkInstance:
    """One instance: ``devices`` are indices on its node, ``first_rank`` counts over all roles."""

    role: str
    index: int
    node: str
    part: int
    devices: tuple[int, ...]
    first_rank: int
    ranks: int

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "WorkInstance":
        return cls(
            role=row["role"],
            index=row["index"],
            node=row["node"],
            part=row["part"],
            devices=tuple(row["devices"]),
            first_rank=row["first_rank"],
            ranks=row["ranks"],
        )


def instances_of(attempt: Attempt) -> tuple[WorkInstance, ...]:
    """By rank; none for a job without roles."""
    return tuple(map(WorkInstance.of, attempt.instances or ()))


def for_next_attempt(attempt: Attempt) -> list[dict[str, Any]] | None:
    """The same instances, without how they ended."""
    if attempt.instances is None:
        return None
    return [{each.name: row[each.name] for each in fields(WorkInstance)} for row in attempt.instances]


def record(db: Database, job_id: str, number: int, fence: int, seen: Mapping[Key, Mapping[str, Any]]) -> None:
    """Write what instances of one part have used, and how they ended; nothing once another attempt has the job."""
    with db.write() as session:
        job = transitions.load_for_change(session, job_id)  # the parts of a gang write one after the other
        if job.fence != fence:
            return
        attempt = session.get_one(Attempt, (job_id, number), populate_existing=True)
        attempt.instances = [{**row, **seen.get((row["role"], row["index"]), {})} for row in attempt.instances or ()]
