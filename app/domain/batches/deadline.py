"""How the priority of a batch's jobs rises while its window runs out. Pure."""

from typing import Final

from app.domain.routing import HIGHEST_PRIORITY

# Share of the window that has passed → how much higher than at first.
_STEPS: Final = ((0.9, 3), (0.75, 2), (0.5, 1))


def priority(first: int, current: int, passed: float) -> int:
    """Never lower than it is."""
    more = next((step for share, step in _STEPS if passed >= share), 0)
    return max(current, min(HIGHEST_PRIORITY, first + more))
