"""What can be asked of a job in its state, so that pages offer nothing that would be refused anyway."""

from app.domain.lifecycle.states import TERMINAL, JobState
from app.domain.spec.inference import REPLICA, TRAINING

PAUSE, RESUME, SAVE, CANCEL, RETRY, CHANGE = "pause", "resume", "save", "cancel", "retry", "change"
KEEP_RUNNING = "resume-running"  # takes back a pause that waits for its checkpoint
PAUSE_NOW = "pause-now"  # without a checkpoint, for a job that was asked to pause and has not saved yet
# States in which a job can save: it runs steps, or interrupts them for a moment.
SAVING = (JobState.TRAINING, JobState.CHECKPOINTING, JobState.EVALUATING)


def offered(state: JobState, kind: str, requested: str | None, *, saves: bool = True) -> frozenset[str]:
    """``requested``: what the job has been asked for and has not carried out yet; ``saves`` False: a pause that is
    forced, or does not save. The commands check more.
    """
    if state in TERMINAL:  # of which the labels change
        return frozenset({CHANGE}) if kind == REPLICA else frozenset({CHANGE, RETRY})
    found = {CHANGE}
    if requested != "cancel":
        found.add(CANCEL)
    if state is JobState.PAUSED:
        found.add(RESUME)
    elif kind != REPLICA and state is not JobState.EXPORTING and requested not in ("pause", "cancel"):
        found.add(PAUSE)
    elif kind != REPLICA and state is not JobState.EXPORTING and requested == "pause":
        found |= {PAUSE_NOW, KEEP_RUNNING} if saves else {PAUSE_NOW}
    if kind == TRAINING and state in SAVING and requested is None:
        found.add(SAVE)
    return frozenset(found)
