"""The transition table says what the design page says."""

from app.domain.lifecycle.states import HELD, RUNNING, TERMINAL, TRANSITIONS, UNHELD, JobState, allowed

# Written out by hand from the design page, so that a slip in the table is seen.
DESIGN = """
PENDING: QUEUED PAUSED CANCELLED FAILED
QUEUED: SCHEDULING PAUSED CANCELLED FAILED
SCHEDULING: PREPARING QUEUED PAUSED CANCELLED FAILED
PREPARING: TRAINING EVALUATING SERVING QUEUED PAUSED CANCELLED FAILED PREEMPTED
TRAINING: CHECKPOINTING EVALUATING EXPORTING COMPLETED QUEUED PAUSED CANCELLED FAILED PREEMPTED
CHECKPOINTING: TRAINING EVALUATING EXPORTING COMPLETED QUEUED PAUSED CANCELLED FAILED PREEMPTED
EVALUATING: TRAINING CHECKPOINTING EXPORTING COMPLETED QUEUED PAUSED CANCELLED FAILED PREEMPTED
SERVING: COMPLETED QUEUED CANCELLED FAILED PREEMPTED
EXPORTING: COMPLETED QUEUED CANCELLED FAILED
PAUSED: QUEUED CANCELLED FAILED
COMPLETED:
FAILED:
CANCELLED:
PREEMPTED:
"""


def test_transitions_are_those_of_the_design() -> None:
    expected = {}
    for line in DESIGN.strip().splitlines():
        before, _, after = line.partition(":")
        expected[JobState(before)] = frozenset(JobState(name) for name in after.split())

    assert expected == TRANSITIONS


def test_terminal_states_lead_nowhere() -> None:
    assert {"COMPLETED", "FAILED", "CANCELLED", "PREEMPTED"} == TERMINAL


def test_every_state_is_held_unheld_or_terminal() -> None:
    assert set(JobState) == HELD | UNHELD | TERMINAL
    assert not HELD & UNHELD
    assert RUNNING < HELD


def test_every_state_that_has_not_ended_can_be_cancelled() -> None:
    assert all(allowed(state, JobState.CANCELLED) for state in set(JobState) - TERMINAL)


def test_an_exported_model_is_not_paused() -> None:
    assert not allowed(JobState.EXPORTING, JobState.PAUSED)


def test_a_replica_that_serves_is_not_paused() -> None:
    assert not allowed(JobState.SERVING, JobState.PAUSED)
