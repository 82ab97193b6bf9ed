"""The instances of a job with roles, and its ranks, in the words of pages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.domain.spec.model import JobDocument
from app.domain.spec.role_documents import document_of
from app.services.attempts.placed_instances import ranks_by_instance
from app.services.interactive.session_ranks import count_ranks
from app.web.formatting import devices

# Above so many ranks, none is listed: one is typed instead.
MOST_LISTED = 64


@dataclass(frozen=True, kw_only=True)
class Instance:
    """``state``: waits, runs or ended. ``ranks`` are those among all of the job."""

    role: str
    index: int
    node: str
    devices: Sequence[int]
    ranks: str
    state: str
    exit_code: int | None
    cpu_seconds: float | None
    peak_memory_mb: float | None


def of_attempt(attempt: Any) -> list[Instance]:  # noqa: ANN401 – models are not imported here
    """None for a job without roles, and before its first attempt."""
    if attempt is None:
        return []
    return [_instance(row, attempt) for row in attempt.instances or ()]


def asked_devices(document: JobDocument) -> list[str]:
    """What each role asks for; empty for a job without roles."""
    shown = []
    for role in document.tasks:
        each = f" for each of {role.count} instances" if role.count > 1 else ""
        shown.append(f"{role.role}: {devices(document_of(document, role).resource_config)}{each}")
    return shown


def labelled_ranks(document: JobDocument) -> list[tuple[int, str]]:
    """All ranks of a job with their names; none where they are too many to choose from."""
    count = count_ranks(document)
    if count > MOST_LISTED:
        return []
    by_instance = ranks_by_instance(document)
    if not by_instance:
        return [(rank, f"rank {rank}") for rank in range(count)]
    return [
        (rank, f"{role} {index}" if len(ranks) == 1 else f"{role} {index}, rank {place}")
        for (role, index), ranks in by_instance.items()
        for place, rank in enumerate(ranks)
    ]


def _instance(row: Mapping[str, Any], attempt: Any) -> Instance:  # noqa: ANN401
    first, last = row["first_rank"], row["first_rank"] + row["ranks"] - 1
    ended = "exit_code" in row or attempt.ended_at is not None
    state = "ended" if ended else "runs" if attempt.started_at is not None else "waits"
    return Instance(
        role=row["role"],
        index=row["index"],
        node=row["node"],
        devices=row["devices"],
        ranks=str(first) if first == last else f"{first} – {last}",
        state=state,
        exit_code=row.get("exit_code"),
        cpu_seconds=row.get("cpu_seconds"),
        peak_memory_mb=row.get("peak_memory_mb"),
    )
