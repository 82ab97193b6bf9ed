"""The actions that pages offer, for every state of a job."""

import pytest

from app.domain.lifecycle.control_actions import offered
from app.domain.lifecycle.states import JobState

_S = JobState
OFFERED = {
    _S.PENDING: {"pause", "cancel", "change"},
    _S.QUEUED: {"pause", "cancel", "change"},
    _S.SCHEDULING: {"pause", "cancel", "change"},
    _S.PREPARING: {"pause", "cancel", "change"},
    _S.TRAINING: {"pause", "save", "cancel", "change"},
    _S.CHECKPOINTING: {"pause", "save", "cancel", "change"},
    _S.EVALUATING: {"pause", "save", "cancel", "change"},
    _S.SERVING: {"pause", "cancel", "change"},
    _S.EXPORTING: {"cancel", "change"},
    _S.PAUSED: {"resume", "cancel", "change"},
    # Of which the labels change.
    _S.COMPLETED: {"retry", "change"},
    _S.FAILED: {"retry", "change"},
    _S.CANCELLED: {"retry", "change"},
    _S.PREEMPTED: {"retry", "change"},
}


@pytest.mark.parametrize("state", JobState)
def test_each_state_of_a_training_offers_what_its_commands_accept(state: JobState):
    assert offered(state, "training", None) == OFFERED[state]


def test_a_job_that_is_about_to_stop_is_only_asked_to_stop_sooner():
    assert offered(_S.TRAINING, "training", "pause", saves=False) == {"pause-now", "cancel", "change"}
    assert offered(_S.TRAINING, "training", "cancel") == {"change"}
    assert offered(_S.TRAINING, "training", "drain") == {"pause", "cancel", "change"}


def test_a_pause_that_waits_for_its_checkpoint_can_be_taken_back():
    assert offered(_S.TRAINING, "training", "pause") == {"pause-now", "resume-running", "cancel", "change"}


def test_a_replica_is_only_cancelled():
    assert offered(_S.SERVING, "replica", None) == {"cancel", "change"}
    assert offered(_S.COMPLETED, "replica", None) == {"change"}


def test_jobs_that_do_not_train_have_no_checkpoints_to_save():
    assert "save" not in offered(_S.EVALUATING, "evaluation", None)
