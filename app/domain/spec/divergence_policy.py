"""A job's policy for a loss that diverges, or becomes NaN or infinite."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

STOP, ROLLBACK = "stop", "rollback"
ACTIONS = (STOP, ROLLBACK)


@dataclass(frozen=True, kw_only=True)
class OnDivergence:
    """``rollback``: back to the last checkpoint with a finite loss, ``max_rollbacks`` times, each time with the
    learning rate multiplied by ``learning_rate_factor``.
    """

    action: str = STOP
    learning_rate_factor: float = 0.5
    max_rollbacks: int = 2


def on_divergence(spec: Mapping[str, Any]) -> OnDivergence:
    """The policy of a stored document, with defaults filled in."""
    wanted = spec["training_config"].get("on_divergence") or {}
    return OnDivergence(
        action=wanted.get("action", OnDivergence.action),
        learning_rate_factor=wanted.get("learning_rate_factor", OnDivergence.learning_rate_factor),
        max_rollbacks=wanted.get("max_rollbacks", OnDivergence.max_rollbacks),
    )
