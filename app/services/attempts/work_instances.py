"""Instances of roles in the work orders of an attempt, read from its row: where each runs, and how it ended."""

from collections.abc import Mapping
from dataclasses import dataclass
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
    return [{name: value for name, value in row.items() if name != "exit_code"} for row in attempt.instances]


def record_ends(db: Database, job_id: str, number: int, fence: int, exit_codes: Mapping[Key, int]) -> None:
    """Write the exit codes of instances of one part; nothing once another attempt has the job."""
    with db.write() as session:
        job = transitions.load_for_change(session, job_id)  # the parts of a gang write one after the other
        if job.fence != fence:
            return
        attempt = session.get_one(Attempt, (job_id, number), populate_existing=True)
        attempt.instances = [_ended(row, exit_codes) for row in attempt.instances or ()]


def _ended(row: dict[str, Any], exit_codes: Mapping[Key, int]) -> dict[str, Any]:
    key = (row["role"], row["index"])
    return {**row, "exit_code": exit_codes[key]} if key in exit_codes else row
