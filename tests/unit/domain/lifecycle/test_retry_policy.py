"""The recovery table, case by case, and the next state of a job that also has a control request."""

from typing import Any, get_args

import pytest

from app.domain.errors import ERROR_TYPES, Cause
from app.domain.lifecycle.outcomes import decide
from app.domain.lifecycle.retry_policy import (
    Backoff,
    Recovery,
    RecoveryHistory,
    RecoveryPolicy,
    describe,
    may_retry,
    recover,
    rule_of,
    takes_host_down,
)
from app.domain.lifecycle.states import HELD, JobState
from app.domain.spec.model import OnDivergence

BACKOFF = Backoff(base_seconds=10.0, max_seconds=360.0)
RESTART, ANEW, ELSEWHERE = RecoveryPolicy.RESTART, RecoveryPolicy.RESCHEDULE, RecoveryPolicy.RESCHEDULE_ELSEWHERE
ROLLBACK = OnDivergence(action="rollback", learning_rate_factor=0.5, max_rollbacks=2)


def found(cause: str, **history: Any) -> Recovery:
    return recover(cause, RecoveryHistory(**{"max_retries": 3, "can_restart": True, **history}), BACKOFF)


FATAL = {
    "INVALID_CONFIG",
    "MODEL_NOT_FOUND",
    "DATA_NOT_FOUND",
    "DATA_INVALID",
    "PACKAGES_FAILED",
    "TRAINER_ERROR",
    "POISON",
    "EXPORT_FAILED",
    "NO_RESULT",
    "MAX_RUNTIME_EXCEEDED",
    "DISK_LIMIT_EXCEEDED",
}


@pytest.mark.parametrize("retries_scripts", [False, True])
@pytest.mark.parametrize("cause", [*ERROR_TYPES, "OF_A_NEWER_VERSION"])
def test_every_cause_has_an_answer_whatever_the_job_says_of_scripts(cause: str, *, retries_scripts: bool) -> None:
    fatal = FATAL | {"OF_A_NEWER_VERSION"} | (set() if retries_scripts else {"SCRIPT_ERROR"})

    assert (rule_of(cause, retries_scripts=retries_scripts) is None) == (cause in fatal)
    recovery = found(cause, max_retries=99, retries_scripts=retries_scripts, on_divergence=ROLLBACK)
    assert (recovery.policy is None) == (cause in fatal)
    assert recovery == Recovery(cause=cause) or cause not in fatal


def test_the_type_of_causes_lists_the_documented_ones() -> None:
    assert get_args(Cause) == tuple(ERROR_TYPES)
    assert all(kind.meaning and kind.what_to_do for kind in ERROR_TYPES.values())


def test_what_is_said_of_a_cause_agrees_with_its_rule() -> None:
    assert {cause for cause in ERROR_TYPES if describe(cause) == "fails at once"} == FATAL
    assert {cause for cause in ERROR_TYPES if not may_retry(cause)} == FATAL
    assert {cause for cause in ERROR_TYPES if takes_host_down(cause)} == {"NODE_LOST", "SUPERVISOR_LOST"}
    anew = "rescheduled, the last time on another node"
    assert describe("SCRIPT_ERROR") == f"fails at once, or with `custom_retry_on_error`: {anew}"


KILLED = {"retries_used": 2, "in_place_restarts": 2}


@pytest.mark.parametrize(
    ("cause", "history", "policy", "wait_seconds", "cheaper"),
    [
        ("RANK_KILLED", {}, RESTART, 0.0, None),
        ("RANK_KILLED", {"retries_used": 1, "in_place_restarts": 1}, RESTART, 0.0, None),
        ("RANK_KILLED", KILLED | {"max_retries": 9}, ANEW, 10.0, RESTART),
        ("RANK_KILLED", KILLED | {"max_retries": 9, "retries_used": 3}, ANEW, 20.0, RESTART),
        ("RANK_KILLED", KILLED | {"max_retries": 9, "failed_here_before": True}, ELSEWHERE, 10.0, RESTART),
        ("RANK_KILLED", KILLED, ELSEWHERE, 10.0, RESTART),  # the last that is left
        ("RANK_KILLED", {"can_restart": False}, ANEW, 0.0, RESTART),
        ("HANG", {}, RESTART, 0.0, None),
        ("HANG", KILLED | {"max_retries": 9, "hangs": 2}, ANEW, 10.0, RESTART),
        ("SUPERVISOR_LOST", {"can_restart": False}, ANEW, 0.0, None),
        ("NODE_LOST", {}, ANEW, 0.0, None),
        ("NODE_LOST", {"retries_used": 1, "host_losses": 1}, ANEW, 10.0, None),
        ("NODE_LOST", {"retries_used": 1, "host_losses": 1, "failed_here_before": True}, ELSEWHERE, 10.0, ANEW),
        ("STORAGE_ERROR", {}, ANEW, 10.0, None),
        ("STORAGE_ERROR", {"retries_used": 1}, ANEW, 20.0, None),
        ("STORAGE_ERROR", {"retries_used": 2}, ELSEWHERE, 40.0, ANEW),
        ("STORAGE_ERROR", {"retries_used": 7, "max_retries": 99}, ANEW, 360.0, None),
        ("STORAGE_ERROR", {"retries_used": 70, "max_retries": 99}, ANEW, 360.0, None),
        ("NETWORK_ERROR", {}, ANEW, 10.0, None),
        ("SCRIPT_ERROR", {"retries_scripts": True}, ANEW, 10.0, None),
        ("INTERNAL", {}, ANEW, 10.0, None),
        ("DEVICE_FAULT", {}, ELSEWHERE, 0.0, None),
        ("DEVICE_FAULT", {"retries_used": 1}, ELSEWHERE, 10.0, None),
        ("INTERNAL", {"max_retries": 1}, ANEW, 10.0, None),
        ("OUT_OF_MEMORY", {"is_custom": True, "batch_size": 8}, ANEW, 10.0, None),
        ("HOST_OUT_OF_MEMORY", {"batch_size": 3}, ANEW, 10.0, None),
    ],
)
def test_a_counted_recovery_begins_with_the_cheapest(
    cause: str, history: dict[str, Any], policy: RecoveryPolicy, wait_seconds: float, cheaper: RecoveryPolicy | None
) -> None:
    expected = Recovery(cause=cause, policy=policy, wait_seconds=wait_seconds, downgraded_from=cheaper, is_counted=True)
    assert found(cause, **history) == expected


@pytest.mark.parametrize("cause", ["RANK_KILLED", "HANG", "SUPERVISOR_LOST", "STORAGE_ERROR", "INTERNAL"])
def test_retries_without_progress_are_bounded(cause: str) -> None:
    assert found(cause, retries_used=3).policy is None
    assert "3 of 3 retries" in found(cause, retries_used=3).note
    assert found(cause, max_retries=0) == Recovery(cause=cause, note="max_retries is 0")


def test_hang_fails_a_job_that_does_not_want_it_retried() -> None:
    assert found("HANG", max_retries=9, retries_hangs=False) == Recovery(
        cause="HANG", note="the job asks that a hang is not retried"
    )
    assert found("RANK_KILLED", max_retries=9, retries_hangs=False).policy is RESTART


def test_a_job_that_hangs_again_and_again_is_given_up_whatever_its_retries() -> None:
    assert found("HANG", hangs=3, retries_used=3, max_retries=99) == Recovery(
        cause="HANG", note="it hung 4 times without progress"
    )


@pytest.mark.parametrize("cause", ["SUPERVISOR_LOST", "NODE_LOST"])
def test_a_job_that_took_its_host_down_three_times_is_poison(cause: str) -> None:
    poisoned = found(cause, host_losses=2, retries_used=2, max_retries=99)

    assert (poisoned.cause, poisoned.policy) == ("POISON", None)
    assert found(cause, host_losses=1, retries_used=1, max_retries=99).policy is ANEW


@pytest.mark.parametrize("cause", ["OUT_OF_MEMORY", "HOST_OUT_OF_MEMORY"])
def test_memory_is_answered_by_smaller_batches_without_counting(cause: str) -> None:
    before: dict[str, Any] = {"rollbacks": 1}

    halvings = []
    for _ in range(4):
        recovery = found(cause, batch_size=32, adjustments=before, retries_used=3)
        assert (recovery.policy, recovery.is_counted, recovery.wait_seconds) == (RESTART, False, 0.0)
        before = dict(recovery.adjustments or {})
        halvings.append(before)

    assert halvings == [{"rollbacks": 1, "batch_halvings": n} for n in (1, 2, 3, 4)]
    assert found(cause, batch_size=32, adjustments=before).is_counted


@pytest.mark.parametrize(("batch_size", "times"), [(1, 0), (2, 1), (3, 0), (4, 2), (6, 1), (12, 2), (16, 4), (64, 4)])
def test_batches_are_halved_only_while_they_stay_whole(batch_size: int, times: int) -> None:
    adjustments: dict[str, Any] = {}
    while (recovery := found("OUT_OF_MEMORY", batch_size=batch_size, adjustments=adjustments)).adjustments:
        adjustments = dict(recovery.adjustments)

    assert adjustments.get("batch_halvings", 0) == times


@pytest.mark.parametrize("cause", ["NON_FINITE_LOSS", "DIVERGED"])
def test_a_loss_that_went_wrong_stops_the_job_unless_it_says_rollback(cause: str) -> None:
    assert found(cause) == Recovery(cause=cause)

    adjustments: dict[str, Any] = {}
    for done, factor in ((1, 0.5), (2, 0.25)):
        recovery = found(cause, on_divergence=ROLLBACK, adjustments=adjustments, max_retries=0)
        assert (recovery.policy, recovery.rolls_back, recovery.is_counted) == (RESTART, True, False)
        adjustments = dict(recovery.adjustments or {})
        assert adjustments == {"rollbacks": done, "learning_rate_factor": factor}
    given_up = found(cause, on_divergence=ROLLBACK, adjustments=adjustments)
    assert (given_up.policy, given_up.note) == (None, "it was rolled back 2 times already (max_rollbacks)")


def test_a_full_disk_is_waited_for_without_end() -> None:
    waits = []
    for disk_waits in (0, 1, 2, 3, 4, 5, 6, 10_000):
        recovery = found("DISK_FULL", retries_used=3, max_retries=0, disk_waits=disk_waits)
        assert (recovery.policy, recovery.is_counted) == (ANEW, False)
        waits.append(recovery.wait_seconds)

    assert waits == [15.0, 30.0, 60.0, 120.0, 240.0, 360.0, 360.0, 360.0]


def test_a_disk_that_is_full_again_is_left_for_another_node() -> None:
    recovery = found("DISK_FULL", retries_used=3, max_retries=0, disk_waits=1, failed_here_before=True)

    assert (recovery.policy, recovery.downgraded_from, recovery.is_counted) == (ELSEWHERE, ANEW, False)
    assert recovery.wait_seconds == 30.0


@pytest.mark.parametrize("cause", ["OUT_OF_MEMORY", "DIVERGED"])
def test_what_would_restart_in_place_is_scheduled_at_once_where_that_cannot_be(cause: str) -> None:
    recovery = found(cause, batch_size=8, on_divergence=ROLLBACK, can_restart=False)

    assert (recovery.policy, recovery.downgraded_from, recovery.wait_seconds) == (ANEW, RESTART, 0.0)
    assert recovery.adjustments


@pytest.mark.parametrize("cause", ["RANK_KILLED", "HANG"])
def test_on_several_nodes_the_first_try_is_scheduled_anew_and_the_last_one_elsewhere(cause: str) -> None:
    first = found(cause, is_gang=True, can_restart=False)
    later = found(cause, is_gang=True, can_restart=False, retries_used=2, hangs=0)

    assert (first.policy, first.downgraded_from) == (ANEW, RESTART)
    assert first.wait_seconds == BACKOFF.base_seconds
    assert later.policy is RecoveryPolicy.RESCHEDULE_ELSEWHERE
    assert later.wait_seconds > first.wait_seconds


# ---- with control requests


@pytest.mark.parametrize(
    ("kind", "cause", "requested", "expected"),
    [
        ("completed", "", None, JobState.COMPLETED),
        ("completed", "", "cancel", JobState.COMPLETED),
        ("completed", "", "preempt", JobState.COMPLETED),
        ("cancelled", "", "cancel", JobState.CANCELLED),
        ("paused", "", "pause", JobState.PAUSED),
        ("paused", "", "cancel", JobState.CANCELLED),
        ("requeued", "", "requeue", JobState.QUEUED),
        ("requeued", "", "cancel", JobState.CANCELLED),
        ("requeued", "", "pause", JobState.PAUSED),
        ("requeued", "", "preempt", JobState.PREEMPTED),
        ("preempted", "", "preempt", JobState.PREEMPTED),
        ("preempted", "", "cancel", JobState.CANCELLED),
        ("preempted", "", "pause", JobState.PAUSED),
        ("failed", "RANK_KILLED", None, JobState.TRAINING),
        ("failed", "STORAGE_ERROR", None, JobState.QUEUED),
        ("failed", "RANK_KILLED", "pause", JobState.PAUSED),
        ("failed", "RANK_KILLED", "preempt", JobState.PREEMPTED),
        ("failed", "RANK_KILLED", "cancel", JobState.CANCELLED),
        ("failed", "DATA_INVALID", None, JobState.FAILED),
        ("failed", "DATA_INVALID", "pause", JobState.FAILED),
        ("failed", "DATA_INVALID", "preempt", JobState.FAILED),
        ("failed", "DATA_INVALID", "cancel", JobState.CANCELLED),
    ],
)
def test_outcome_and_control_request_decide_the_next_state(
    kind: Any, cause: str, requested: str | None, expected: JobState
) -> None:
    recovery = found(cause) if kind == "failed" else None
    decision = decide(kind, state=JobState.TRAINING, requested=requested, preemption="terminate", recovery=recovery)

    assert decision.state is expected


@pytest.mark.parametrize("state", sorted(HELD))
@pytest.mark.parametrize("kind", ["preempted", "requeued"])
def test_a_job_that_is_requeued_after_preemption_never_passes_through_preempted(state: JobState, kind: Any) -> None:
    decision = decide(kind, state=state, requested="preempt", preemption="requeue", recovery=None)

    assert (decision.state, decision.policy) == (JobState.QUEUED, ANEW)


@pytest.mark.parametrize(
    ("state", "kind", "expected"),
    [
        (JobState.EXPORTING, "paused", JobState.QUEUED),
        (JobState.EXPORTING, "preempted", JobState.QUEUED),
        (JobState.SCHEDULING, "preempted", JobState.QUEUED),
        (JobState.SCHEDULING, "paused", JobState.PAUSED),
        (JobState.PREPARING, "preempted", JobState.PREEMPTED),
    ],
)
def test_where_the_table_has_no_such_step_a_job_goes_back_to_the_queue(
    state: JobState, kind: Any, expected: JobState
) -> None:
    assert decide(kind, state=state, requested=None, preemption="terminate", recovery=None).state is expected


@pytest.mark.parametrize("kind", ["failed", "requeued"])
def test_an_export_that_broke_after_a_pause_request_is_paused_by_way_of_the_queue(kind: Any) -> None:
    recovery = found("NODE_LOST") if kind == "failed" else None
    decision = decide(kind, state=JobState.EXPORTING, requested="pause", preemption="terminate", recovery=recovery)

    assert (decision.state, decision.via) == (JobState.PAUSED, JobState.QUEUED)
    assert decision.policy is None
