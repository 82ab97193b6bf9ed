"""What can be asked of a sweep in its state, so that pages offer nothing that would be refused anyway."""

from app.domain.sweeps.states import TERMINAL, SweepState

PAUSE, RESUME, STOP, CANCEL = "pause", "resume", "stop", "cancel"


def offered(state: SweepState) -> frozenset[str]:
    """The commands check more."""
    if state in TERMINAL:
        return frozenset()
    if state is SweepState.FINISHING:
        return frozenset({CANCEL})
    return frozenset({RESUME if state is SweepState.PAUSED else PAUSE, STOP, CANCEL})
