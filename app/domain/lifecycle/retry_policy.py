"""Retry policy: how to recover a job, by the cause of its failure and earlier retries; cheapest means first.

A restart in place costs seconds; rescheduling costs a wait for devices and a new supervisor; rescheduling without the
node that the job keeps failing on may lose data locality. The names are those of ModelArts' running records. Counters
are reset with every checkpoint that reaches further than all before: a job that makes progress may fail any number of
times.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, assert_never

from app.domain.errors import Cause, is_cause
from app.domain.spec.frameworks.custom import RETRY
from app.domain.spec.model import ROLLBACK, OnDivergence

DISK_FULL_SECONDS = 15.0
_MOST_DOUBLINGS = 16  # of the wait for a disk: its counter is unbounded, and the power must not overflow
MOST_HALVINGS = 4  # of the per-device batch: a sixteenth
MOST_HANGS = 3
POISON_LOSSES = 3  # losses of node or supervisor without progress between them


class RecoveryPolicy(StrEnum):
    RESTART = "proc_restart"  # new processes under the same supervisor, on the same devices
    RESCHEDULE = "job_reschedule"
    RESCHEDULE_ELSEWHERE = "job_reschedule_with_taint"  # not on this node, unless no other one could run it


# Tolerated clock skew between machines.
CLOCKS_DIFFER = timedelta(minutes=1)


def rests(not_before_at: datetime | None, queued_at: datetime | None, now: datetime) -> bool:
    """Whether a job still backs off before its next attempt.

    A backoff that begins in the future was written before the clock was set back, and is ignored.
    """
    if not_before_at is None or not_before_at <= now:
        return False
    return queued_at is None or queued_at <= now + CLOCKS_DIFFER


@dataclass(frozen=True, kw_only=True)
class Backoff:
    base_seconds: float
    max_seconds: float


@dataclass(frozen=True, kw_only=True)
class RecoveryRule:
    """Recovery options for a cause.

    ``in_place``: restarts without progress before the job is rescheduled. ``waits``: backoff starts with the first
    retry, not the second. ``most``: maximum recoveries without progress, regardless of max_retries. ``leaves_node``:
    the fault persists on that node.
    """

    in_place: int = 0
    waits: bool = True
    most: int | None = None
    takes_host_down: bool = False
    leaves_node: bool = False
    halves_batch: bool = False
    rolls_back: bool = False
    waits_for_disk: bool = False

    @property
    def may_restart(self) -> bool:
        """Whether it allows any restart in place."""
        return self.in_place > 0 or self.halves_batch or self.rolls_back


def rule_of(cause: str, *, retries_scripts: bool) -> RecoveryRule | None:
    """The rule for a cause; None: the job fails at once, as it does for causes unknown to this version.

    ``retries_scripts``: the job's ``custom_retry_on_error``, which declares errors of its script as transient.
    """
    return _rule_of(cause, retries_scripts=retries_scripts) if is_cause(cause) else None


def _rule_of(cause: Cause, *, retries_scripts: bool) -> RecoveryRule | None:  # noqa: C901  a table, complete by its type
    match cause:
        case "RANK_KILLED":
            return RecoveryRule(in_place=2)
        case "HANG":
            return RecoveryRule(in_place=2, most=MOST_HANGS)
        case "SUPERVISOR_LOST" | "NODE_LOST":
            return RecoveryRule(waits=False, takes_host_down=True)
        case "STORAGE_ERROR" | "NETWORK_ERROR" | "HUB_UNREACHABLE" | "INTERNAL" | "OUTCOME_ERROR":
            return RecoveryRule()
        case "DEVICE_FAULT":
            return RecoveryRule(waits=False, leaves_node=True)
        case "OUT_OF_MEMORY" | "HOST_OUT_OF_MEMORY":
            return RecoveryRule(halves_batch=True)
        case "NON_FINITE_LOSS" | "DIVERGED":
            return RecoveryRule(rolls_back=True)
        case "DISK_FULL":
            return RecoveryRule(waits_for_disk=True)
        case "SCRIPT_ERROR":
            return RecoveryRule() if retries_scripts else None
        case (
            "INVALID_CONFIG"
            | "MODEL_NOT_FOUND"
            | "DATA_NOT_FOUND"
            | "DATA_INVALID"
            | "PACKAGES_FAILED"
            | "TRAINER_ERROR"
            | "POISON"
            | "EXPORT_FAILED"
            | "NO_RESULT"
            | "MAX_RUNTIME_EXCEEDED"
            | "DISK_LIMIT_EXCEEDED"
        ):
            return None
        case _:
            assert_never(cause)


def may_retry(cause: str) -> bool:
    """Whether the cause can be retried, at least with suitable job settings."""
    return rule_of(cause, retries_scripts=True) is not None


def takes_host_down(cause: str) -> bool:
    """Whether the cause means that the attempt's node or supervisor was lost."""
    rule = rule_of(cause, retries_scripts=False)
    return rule is not None and rule.takes_host_down


@dataclass(frozen=True, kw_only=True)
class RecoveryHistory:
    """Recoveries of a job since its last progress, and what the job allows."""

    max_retries: int
    retries_used: int = 0
    in_place_restarts: int = 0
    hangs: int = 0
    host_losses: int = 0
    disk_waits: int = 0
    failed_here_before: bool = False  # its last scheduled attempt also failed on this node
    can_restart: bool = False  # its supervisor is alive and may run another attempt
    is_gang: bool = False  # on several nodes: no restart in place
    is_custom: bool = False
    retries_scripts: bool = False  # whether an error of the script itself may pass
    retries_hangs: bool = True
    batch_size: int = 1  # per device, as the document says
    adjustments: Mapping[str, Any] = field(default_factory=dict)
    on_divergence: OnDivergence = field(default_factory=OnDivergence)


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """The decision; ``policy`` None: the job fails with ``cause``, and ``note`` says why it is not retried.

    ``downgraded_from`` is the cheaper policy that is exhausted or not available. ``adjustments`` are the job's new
    ones, None when unchanged.
    """

    cause: str
    policy: RecoveryPolicy | None = None
    wait_seconds: float = 0.0
    is_counted: bool = False
    downgraded_from: RecoveryPolicy | None = None
    adjustments: Mapping[str, Any] | None = None
    rolls_back: bool = False
    note: str = ""


def recover(cause: str, history: RecoveryHistory, backoff: Backoff) -> Recovery:
    """Apply the table to a failure. Pure."""
    rule = rule_of(cause, retries_scripts=history.retries_scripts)
    if rule is None:
        return Recovery(cause=cause)
    if rule.waits_for_disk:
        return _wait_for_disk(cause, history, backoff)
    if rule.rolls_back:
        return _roll_back(cause, history)
    if rule.halves_batch and (halved := _halve_batch(history)) is not None:
        return _in_place(Recovery(cause=cause, adjustments=halved), history)
    if rule.takes_host_down and history.host_losses + 1 >= POISON_LOSSES:
        note = f"it took its node or supervisor down {POISON_LOSSES} times without progress"
        return Recovery(cause="POISON", note=note)
    if cause == "HANG" and not history.retries_hangs:
        return Recovery(cause=cause, note="the job asks that a hang is not retried")
    if cause == "HANG" and history.hangs >= MOST_HANGS:
        return Recovery(cause=cause, note=f"it hung {history.hangs + 1} times without progress")
    if history.retries_used >= history.max_retries:
        return Recovery(cause=cause, note=_used_up(history))
    return _retry(cause, rule, history, backoff)


def describe(cause: str) -> str:
    """The table's entry for a cause, in words."""
    always, for_scripts = (rule_of(cause, retries_scripts=each) for each in (False, True))
    if for_scripts is None:
        return "fails at once"
    text = _describe(for_scripts)
    return text if always is not None else f"fails at once, or with `{RETRY}`: {text}"


def _describe(rule: RecoveryRule) -> str:
    if rule.waits_for_disk:
        return (
            f"waits {DISK_FULL_SECONDS:g} s, then twice as long each time, and is retried without limit; after the 2nd "
            "time in a row on the same node rather on another one; not counted"
        )
    if rule.rolls_back:
        return (
            "fails at once, or with `on_divergence: rollback` restarts in place from the last good checkpoint with a "
            "lower learning rate; not counted"
        )
    again = "rescheduled, the last time on another node"
    if rule.leaves_node:
        again = "rescheduled on another node"
    if rule.halves_batch:
        return (
            f"restarts in place with the per-device batch halved and the accumulation doubled, up to {MOST_HALVINGS} "
            f"times, not counted; where that can't be: {again}"
        )
    steps = f"restarted in place, up to {rule.in_place} times; then {again}" if rule.in_place else again
    pause = "" if rule.waits else "; the first time without a pause"
    most = f"; at most {rule.most} times in all" if rule.most is not None else ""
    poison = f"; the {POISON_LOSSES}rd time in a row it fails as POISON" if rule.takes_host_down else ""
    return steps + pause + most + poison


def _wait_for_disk(cause: str, history: RecoveryHistory, backoff: Backoff) -> Recovery:
    """Retry without limit, but at growing intervals: every attempt holds devices while it starts."""
    wait = DISK_FULL_SECONDS * 2.0 ** min(history.disk_waits, _MOST_DOUBLINGS)
    return Recovery(
        cause=cause,
        policy=RecoveryPolicy.RESCHEDULE_ELSEWHERE if history.failed_here_before else RecoveryPolicy.RESCHEDULE,
        wait_seconds=max(DISK_FULL_SECONDS, min(backoff.max_seconds, wait)),
        downgraded_from=RecoveryPolicy.RESCHEDULE if history.failed_here_before else None,
    )


def _retry(cause: str, rule: RecoveryRule, history: RecoveryHistory, backoff: Backoff) -> Recovery:
    """A counted retry: in place while that is allowed, else rescheduled, and finally on another node."""
    if history.in_place_restarts < rule.in_place and not history.is_gang:
        return _in_place(Recovery(cause=cause, is_counted=True), history)
    # The last retry also goes to another node than the failed ones.
    is_last = history.retries_used + 1 >= history.max_retries
    elsewhere = rule.leaves_node or history.failed_here_before or (is_last and history.retries_used > 0)
    cheaper = (
        RecoveryPolicy.RESTART
        if rule.in_place
        else RecoveryPolicy.RESCHEDULE
        if elsewhere and not rule.leaves_node
        else None
    )
    return Recovery(
        cause=cause,
        policy=RecoveryPolicy.RESCHEDULE_ELSEWHERE if elsewhere else RecoveryPolicy.RESCHEDULE,
        wait_seconds=_pause(rule, history, backoff),
        is_counted=True,
        downgraded_from=cheaper,
    )


def _in_place(recovery: Recovery, history: RecoveryHistory) -> Recovery:
    """Restart by the same supervisor if possible, else reschedule without backoff."""
    policy, cheaper = (
        (RecoveryPolicy.RESTART, None) if history.can_restart else (RecoveryPolicy.RESCHEDULE, RecoveryPolicy.RESTART)
    )
    return Recovery(
        cause=recovery.cause,
        policy=policy,
        is_counted=recovery.is_counted,
        downgraded_from=cheaper,
        adjustments=recovery.adjustments,
        rolls_back=recovery.rolls_back,
    )


def _pause(rule: RecoveryRule, history: RecoveryHistory, backoff: Backoff) -> float:
    """Backoff that doubles with every rescheduling without progress."""
    before = history.retries_used - history.in_place_restarts - (0 if rule.waits else 1)
    return min(backoff.max_seconds, backoff.base_seconds * 2.0**before) if before >= 0 else 0.0


def smallest_batch(batch_size: int) -> int:
    """What is left of a batch after as many halvings as there can be."""
    halvings = (2**count for count in range(MOST_HALVINGS, 0, -1))
    return next((batch_size // each for each in halvings if batch_size % each == 0), batch_size)


def _halve_batch(history: RecoveryHistory) -> dict[str, Any] | None:
    """New adjustments; None when the batch can't be halved evenly, or is set by a custom script."""
    halvings = history.adjustments.get("batch_halvings", 0) + 1
    if history.is_custom or halvings > MOST_HALVINGS or history.batch_size % 2**halvings:
        return None
    return {**history.adjustments, "batch_halvings": halvings}


def _roll_back(cause: str, history: RecoveryHistory) -> Recovery:
    wanted, done = history.on_divergence, history.adjustments.get("rollbacks", 0)
    if wanted.action != ROLLBACK:
        return Recovery(cause=cause)
    if done >= wanted.max_rollbacks:
        return Recovery(cause=cause, note=f"it was rolled back {done} times already (max_rollbacks)")
    factor = history.adjustments.get("learning_rate_factor", 1.0) * wanted.learning_rate_factor
    adjusted = {**history.adjustments, "rollbacks": done + 1, "learning_rate_factor": factor}
    return _in_place(Recovery(cause=cause, adjustments=adjusted, rolls_back=True), history)


def _used_up(history: RecoveryHistory) -> str:
    if not history.max_retries:
        return "max_retries is 0"
    return f"{history.retries_used} of {history.max_retries} retries (max_retries) made no progress"
