"""Which step of a run is a halt, and what becomes of an attempt that ended otherwise there."""

import pytest

from app.domain.lifecycle.halts import is_halt
from app.domain.lifecycle.outcomes import Decision, at_halt
from app.domain.lifecycle.retry_policy import Recovery, RecoveryPolicy
from app.domain.lifecycle.states import JobState
from app.domain.spec.model import HaltAt

STEPS, EPOCHS = HaltAt(at=(2, 9)), HaltAt(unit="epochs", at=(1, 3))
RECOVERY = Recovery(cause="RANK_KILLED", policy=RecoveryPolicy.RESCHEDULE)


@pytest.mark.parametrize(
    ("halts", "step", "epoch", "total", "found"),
    [
        (None, 2, 1.0, 10, False),
        (STEPS, 1, 1.0, 10, False),
        (STEPS, 2, 0.25, 10, True),
        (STEPS, 9, 1.1, 10, True),
        (STEPS, 9, 1.1, 9, False),
        (STEPS, 9, 1.1, None, True),
        (EPOCHS, 8, 1.0, 80, True),
        (EPOCHS, 8, 0.1 * 3 + 0.7, 80, True),
        (EPOCHS, 2, 0.25, 80, False),
        (EPOCHS, 16, 2.0, 80, False),
        (EPOCHS, 24, 3.0, 24, False),
    ],
)
def test_step_is_a_halt_if_the_document_names_it_and_the_run_continues_after_it(
    halts: HaltAt | None, step: int, epoch: float, total: int | None, *, found: bool
) -> None:
    assert is_halt(halts, step=step, epoch=epoch, total_steps=total) == found


@pytest.mark.parametrize(
    ("decision", "state"),
    [
        (Decision(state=JobState.QUEUED, policy=RecoveryPolicy.RESCHEDULE), JobState.CHECKPOINTING),
        (Decision(state=JobState.QUEUED, policy=RecoveryPolicy.RESCHEDULE, recovery=RECOVERY), JobState.TRAINING),
        (Decision(state=JobState.TRAINING, policy=RecoveryPolicy.RESTART, recovery=RECOVERY), JobState.TRAINING),
    ],
    ids=["requeued", "rescheduled", "restarted in place"],
)
def test_job_that_would_continue_past_its_halt_is_paused(decision: Decision, state: JobState) -> None:
    found = at_halt(decision, state, "halted at step 2")

    assert (found.state, found.halt, found.restarts) == (JobState.PAUSED, "halted at step 2", False)
    assert found.recovery == decision.recovery


@pytest.mark.parametrize(
    ("decision", "state"),
    [
        (Decision(state=JobState.COMPLETED), JobState.TRAINING),
        (Decision(state=JobState.CANCELLED), JobState.TRAINING),
        (Decision(state=JobState.PREEMPTED), JobState.TRAINING),
        (Decision(state=JobState.FAILED, recovery=RECOVERY), JobState.TRAINING),
        (Decision(state=JobState.PAUSED), JobState.TRAINING),
        (Decision(state=JobState.QUEUED, policy=RecoveryPolicy.RESCHEDULE), JobState.EXPORTING),
        (
            Decision(
                state=JobState.QUEUED,
                recovery=Recovery(cause="DIVERGED", policy=RecoveryPolicy.RESCHEDULE, rolls_back=True),
            ),
            JobState.TRAINING,
        ),
    ],
    ids=["completed", "cancelled", "preempted", "failed", "paused", "exporting", "rolled back"],
)
def test_every_other_decision_stays(decision: Decision, state: JobState) -> None:
    assert at_halt(decision, state, "halted at step 2") is decision
