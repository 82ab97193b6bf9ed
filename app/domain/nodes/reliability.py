"""Reliability of a node from the outcomes of attempts there: 1 for a node that never failed, towards 0 for one that
always does. Pure.

The reputation is an exponential moving average: each relevant attempt moves it a tenth of the way to 1 or to 0, so an
outcome counts half as much after seven more attempts.
"""

from dataclasses import dataclass
from typing import Literal

from app.domain.lifecycle.outcomes import OutcomeKind

SHARE = 0.1  # weight of an attempt in the reputation
DISCONNECTS = frozenset({"NODE_LOST", "SUPERVISOR_LOST"})
# Causes that certainly lie with the node. Other faults may be due to the document, or to a script that exhausts it.
CERTAIN = frozenset({"DEVICE_FAULT"})
FAULTS = CERTAIN | {"INTERNAL"}
_SUCCESSFUL: frozenset[OutcomeKind] = frozenset({"completed", "paused", "preempted"})

Counter = Literal["completions", "disconnects", "faults"]


@dataclass(frozen=True, kw_only=True)
class NodeEffect:
    """Effect of an attempt on a node's record; ``counter``: what it counts as; ``towards``: 1 or 0.

    ``is_certain``: False where a script or document may be the cause; it counts once another node did better.
    """

    counter: Counter
    towards: float
    is_certain: bool = True


def effect_on_node(kind: OutcomeKind, cause: str, *, trained: bool, left_behind: bool) -> NodeEffect | None:
    """Effect of an attempt's outcome on its node's record; None when the job or a user may be the cause.

    ``trained``: the attempt reached training. ``left_behind``: a process of it could not be killed.
    """
    if left_behind:
        return NodeEffect(counter="faults", towards=0.0)
    if cause in DISCONNECTS | FAULTS:
        return NodeEffect(counter=counter_of(cause), towards=0.0, is_certain=cause in CERTAIN)
    return NodeEffect(counter="completions", towards=1.0) if trained and kind in _SUCCESSFUL else None


def counter_of(cause: str) -> Counter:
    """Counter for a fault of a node."""
    return "disconnects" if cause in DISCONNECTS else "faults"
