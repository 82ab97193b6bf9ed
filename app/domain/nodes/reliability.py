"""How far a node can be relied on, from how attempts ended there: 1 for one that never failed, towards 0 for one that
always does. Pure.

Each attempt that says something of its node moves the reputation a tenth of the way to 1 or to 0, so what happened
counts the less the longer ago it is: after seven attempts half as much.
"""

from dataclasses import dataclass
from typing import Literal

from app.domain.lifecycle.outcomes import OutcomeKind

SHARE = 0.1  # of an attempt in the reputation after it
DISCONNECTS = frozenset({"NODE_LOST", "SUPERVISOR_LOST"})
# Broken hardware is the node's for certain. What we can't prepare may be the document; a script may exhaust a machine.
CERTAIN = frozenset({"DEVICE_FAULT"})
FAULTS = CERTAIN | {"INTERNAL"}
_WELL: frozenset[OutcomeKind] = frozenset({"completed", "paused", "preempted"})

Deed = Literal["completions", "disconnects", "faults"]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """``deed``: what it counts as; ``towards``: 1 or 0.

    ``is_certain``: False where a script or a document may have caused it; it counts when another node did better.
    """

    deed: Deed
    towards: float
    is_certain: bool = True


def verdict_on_node(kind: OutcomeKind, cause: str, *, trained: bool, left_behind: bool) -> Verdict | None:
    """What the end of an attempt says of its node; None for one that may as well be the job's doing, or a person's.

    ``trained``: it came so far. ``left_behind``: a process of it could not be ended.
    """
    if left_behind:
        return Verdict(deed="faults", towards=0.0)
    if cause in DISCONNECTS | FAULTS:
        return Verdict(deed=deed_of(cause), towards=0.0, is_certain=cause in CERTAIN)
    return Verdict(deed="completions", towards=1.0) if trained and kind in _WELL else None


def deed_of(cause: str) -> Deed:
    """What a fault of a node counts as."""
    return "disconnects" if cause in DISCONNECTS else "faults"
