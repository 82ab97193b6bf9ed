"""How a job is recovered, by the cause of its failure and by what was tried before: one table, cheapest means first.

A restart of the processes in place costs seconds; scheduling anew costs a wait for devices and a new supervisor; doing
so without the node that the job keeps failing on may cost the place of its data. The names are those of ModelArts'
running records. What counts is counted anew with every checkpoint that reaches further than all before: a job that
makes progress may fail as often as it likes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, assert_never

from app.domain.errors import Cause, is_cause
from app.domain.spec.divergence_policy import ROLLBACK, OnDivergence
from app.domain.spec.frameworks.custom import RETRY

DISK_FULL_SECONDS = 15.0
_MOST_DOUBLINGS = 16  # of the wait for a disk; it is counted without end, and 2 to the power of that has one
MOST_HALVINGS = 4  # of the per-device batch: a sixteenth
MOST_HANGS = 3
POISON_LOSSES = 3  # of its node or supervisor, without progress between them


class Policy(StrEnum):
    RESTART = "proc_restart"  # new processes under the same supervisor, on the same devices
    RESCHEDULE = "job_reschedule"
    RESCHEDULE_ELSEWHERE = "job_reschedule_with_taint"  # not on this node, as long as another one could do it


# Clocks of machines differ by less, and are corrected by less, without anything being wrong.
CLOCKS_DIFFER = timedelta(minutes=1)


def rests(not_before_at: datetime | None, queued_at: datetime | None, now: datetime) -> bool:
    """Whether a job still waits before it is tried again.

    A pause that began in the future was written before the clock was set back: nobody knows how long it lasts.
    """
    if not_before_at is None or not_before_at <= now:
        return False
    return queued_at is None or queued_at <= now + CLOCKS_DIFFER


@dataclass(frozen=True, kw_only=True)
class Backoff:
    base_seconds: float
    max_seconds: float


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What may be done about a cause.

    ``in_place``: restarts without progress before the job is scheduled anew. ``waits``: the backoff begins with the
    first retry, not the second. ``most``: recoveries without progress, whatever max_retries allows. ``leaves_node``:
    what broke there is broken still.
    """

    in_place: int = 0
    waits: bool = True
    most: int | None = None
    takes_host_down: bool = False
    leaves_node: bool = False
    halves_batch: bool = False
    rolls_back: bool = False
    waits_for_disk: bool = False


def rule_of(cause: str, *, retries_scripts: bool) -> Rule | None:
    """What may be done about a cause; None: the job fails at once, as with a cause that this version doesn't know.

    ``retries_scripts``: the job's ``custom_retry_on_error``, which says that an error of its script may pass.
    """
    return _rule_of(cause, retries_scripts=retries_scripts) if is_cause(cause) else None


def _rule_of(cause: Cause, *, retries_scripts: bool) -> Rule | None:  # noqa: C901  a table, complete by its type
    match cause:
        case "RANK_KILLED":
            return Rule(in_place=2)
        case "HANG":
            return Rule(in_place=2, most=MOST_HANGS)
        case "SUPERVISOR_LOST" | "NODE_LOST":
            return Rule(waits=False, takes_host_down=True)
        case "STORAGE_ERROR" | "NETWORK_ERROR" | "INTERNAL" | "OUTCOME_ERROR":
            return Rule()
        case "DEVICE_FAULT":
            return Rule(waits=False, leaves_node=True)
        case "OUT_OF_MEMORY" | "HOST_OUT_OF_MEMORY":
            return Rule(halves_batch=True)
        case "NON_FINITE_LOSS" | "DIVERGED":
            return Rule(rolls_back=True)
        case "DISK_FULL":
            return Rule(waits_for_disk=True)
        case "SCRIPT_ERROR":
            return Rule() if retries_scripts else None
        case (
            "INVALID_CONFIG" | "MODEL_NOT_FOUND" | "DATA_NOT_FOUND" | "DATA_INVALID" | "TRAINER_ERROR" | "POISON"
            | "EXPORT_FAILED" | "NO_RESULT" | "MAX_RUNTIME_EXCEEDED"
        ):  # fmt: skip
            return None
        case _:
            assert_never(cause)


def may_retry(cause: str) -> bool:
    """Whether a job may survive the cause by itself, at least with settings of its own."""
    return rule_of(cause, retries_scripts=True) is not None


def takes_host_down(cause: str) -> bool:
    """Whether the attempt's node or supervisor is gone by it."""
    rule = rule_of(cause, retries_scripts=False)
    return rule is not None and rule.takes_host_down


@dataclass(frozen=True, kw_only=True)
class History:
    """What was tried for a job since its last further checkpoint, and what it allows."""

    max_retries: int
    retries_used: int = 0
    in_place_restarts: int = 0
    hangs: int = 0
    host_losses: int = 0
    disk_waits: int = 0
    failed_here_before: bool = False  # the last time it was scheduled, it failed on this node too
    can_restart: bool = False  # its supervisor is there and may run another attempt
    is_gang: bool = False  # on several nodes, where there is no restart in place
    is_custom: bool = False
    retries_scripts: bool = False  # whether an error of the script itself may pass
    batch_size: int = 1  # per device, as the document says
    adjustments: Mapping[str, Any] = field(default_factory=dict)
    on_divergence: OnDivergence = field(default_factory=OnDivergence)


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """What is done; ``policy`` None: nothing, the job fails with ``cause``, and ``note`` says why no more is tried.

    ``downgraded_from`` is the cheaper policy that is used up or cannot be had. ``adjustments`` are the job's new ones,
    None when they stay.
    """

    cause: str
    policy: Policy | None = None
    wait_seconds: float = 0.0
    is_counted: bool = False
    downgraded_from: Policy | None = None
    adjustments: Mapping[str, Any] | None = None
    goes_back: bool = False
    note: str = ""


def recover(cause: str, history: History, backoff: Backoff) -> Recovery:
    """The table, applied: pure, so that every case of it can stand in a test."""
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
        note = f"it took its node or supervisor down {POISON_LOSSES} times without getting further"
        return Recovery(cause="POISON", note=note)
    if cause == "HANG" and history.hangs >= MOST_HANGS:
        return Recovery(cause=cause, note=f"it hung {history.hangs + 1} times without getting further")
    if history.retries_used >= history.max_retries:
        return Recovery(cause=cause, note=_used_up(history))
    return _retry(cause, rule, history, backoff)


def describe(cause: str) -> str:
    """What the table says of a cause, in words."""
    always, for_scripts = (rule_of(cause, retries_scripts=each) for each in (False, True))
    if for_scripts is None:
        return "fails at once"
    said = _described(for_scripts)
    return said if always is not None else f"fails at once, or with `{RETRY}`: {said}"


def _described(rule: Rule) -> str:
    if rule.waits_for_disk:
        return (
            f"waits {DISK_FULL_SECONDS:g} s, then twice as long each time, and is tried again, for ever; after the 2nd "
            "time in a row on the same node rather on another one; not counted"
        )
    if rule.rolls_back:
        return (
            "fails at once, or with `on_divergence: rollback` restarts in place from the last good checkpoint with a "
            "lower learning rate; not counted"
        )
    again = "scheduled anew, the last time on another node"
    if rule.leaves_node:
        again = "scheduled anew on another node"
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


def _wait_for_disk(cause: str, history: History, backoff: Backoff) -> Recovery:
    """For as long as it takes, but ever more rarely: every try holds devices for a whole start."""
    wait = DISK_FULL_SECONDS * 2.0 ** min(history.disk_waits, _MOST_DOUBLINGS)
    return Recovery(
        cause=cause,
        policy=Policy.RESCHEDULE_ELSEWHERE if history.failed_here_before else Policy.RESCHEDULE,
        wait_seconds=max(DISK_FULL_SECONDS, min(backoff.max_seconds, wait)),
        downgraded_from=Policy.RESCHEDULE if history.failed_here_before else None,
    )


def _retry(cause: str, rule: Rule, history: History, backoff: Backoff) -> Recovery:
    """One that is counted: in place as long as that is allowed, else anew, and at last elsewhere."""
    if history.in_place_restarts < rule.in_place and not history.is_gang:
        return _in_place(Recovery(cause=cause, is_counted=True), history)
    # The last try that is left goes elsewhere too: it is not to end where all the others did.
    is_last = history.retries_used + 1 >= history.max_retries
    elsewhere = rule.leaves_node or history.failed_here_before or (is_last and history.retries_used > 0)
    cheaper = Policy.RESTART if rule.in_place else Policy.RESCHEDULE if elsewhere and not rule.leaves_node else None
    return Recovery(
        cause=cause,
        policy=Policy.RESCHEDULE_ELSEWHERE if elsewhere else Policy.RESCHEDULE,
        wait_seconds=_pause(rule, history, backoff),
        is_counted=True,
        downgraded_from=cheaper,
    )


def _in_place(recovery: Recovery, history: History) -> Recovery:
    """A restart by the supervisor, or where there is none for it, by another one at once."""
    policy, cheaper = (Policy.RESTART, None) if history.can_restart else (Policy.RESCHEDULE, Policy.RESTART)
    return Recovery(
        cause=recovery.cause, policy=policy, is_counted=recovery.is_counted, downgraded_from=cheaper,
        adjustments=recovery.adjustments, goes_back=recovery.goes_back,
    )  # fmt: skip


def _pause(rule: Rule, history: History, backoff: Backoff) -> float:
    """Doubles with every time that the job was scheduled anew without having got further since."""
    before = history.retries_used - history.in_place_restarts - (0 if rule.waits else 1)
    return min(backoff.max_seconds, backoff.base_seconds * 2.0**before) if before >= 0 else 0.0


def _halve_batch(history: History) -> dict[str, Any] | None:
    """None when a half is no whole batch any more, or the batch is a script's own matter."""
    halvings = history.adjustments.get("batch_halvings", 0) + 1
    if history.is_custom or halvings > MOST_HALVINGS or history.batch_size % 2**halvings:
        return None
    return {**history.adjustments, "batch_halvings": halvings}


def _roll_back(cause: str, history: History) -> Recovery:
    wanted, done = history.on_divergence, history.adjustments.get("rollbacks", 0)
    if wanted.action != ROLLBACK:
        return Recovery(cause=cause)
    if done >= wanted.max_rollbacks:
        return Recovery(cause=cause, note=f"it was rolled back {done} times already (max_rollbacks)")
    factor = history.adjustments.get("learning_rate_factor", 1.0) * wanted.learning_rate_factor
    adjusted = {**history.adjustments, "rollbacks": done + 1, "learning_rate_factor": factor}
    return _in_place(Recovery(cause=cause, adjustments=adjusted, goes_back=True), history)


def _used_up(history: History) -> str:
    if not history.max_retries:
        return "max_retries is 0"
    return f"{history.retries_used} of {history.max_retries} retries (max_retries) brought it no further"
