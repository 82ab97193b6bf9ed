"""Actions that a sweep's page offers, by its state."""

import pytest

from app.domain.sweeps.control_actions import offered
from app.domain.sweeps.states import TERMINAL, SweepState


@pytest.mark.parametrize(
    ("state", "actions"),
    [
        (SweepState.RUNNING, {"pause", "stop", "cancel"}),
        (SweepState.PAUSED, {"resume", "stop", "cancel"}),
        (SweepState.FINISHING, {"cancel"}),
        *((state, set()) for state in sorted(TERMINAL)),
    ],
)
def test_a_sweep_offers_what_its_state_allows(state: SweepState, actions: set[str]):
    assert offered(state) == actions
