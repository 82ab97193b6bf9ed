"""Scheduling settings: planner intervals, retries, scoring weights and quarantine."""

from dataclasses import dataclass

from config.values import rules
from config.values.fields import setting


@dataclass(frozen=True, kw_only=True)
class SchedulerSettings:
    poll_seconds: float = setting(
        0.5, "how often planner and reconciler poll the database without being woken", rules.poll_seconds
    )
    resend_seconds: float = setting(5.0, "a dispatched attempt that is not claimed for this long is announced again")
    reserve_after_seconds: float = setting(
        1800.0, "a job that has waited this long gets a reserved node, on which only short jobs start from then on"
    )
    max_waiting_jobs: int = setting(
        10_000,
        "about so many jobs of a project may wait before submissions are refused with 429, unless its quota sets "
        "max_waiting_jobs; 0: unlimited",
        rules.not_negative,
    )
    retry_base_seconds: float = setting(1.0, "pause before the first automatic retry; doubles each time")
    retry_max_seconds: float = setting(360.0, "longest pause before an automatic retry")


@dataclass(frozen=True, kw_only=True)
class ScoreSettings:
    """Weights of ``app.domain.scheduling.scoring.SCORES``, by name."""

    device: float = setting(100.0, "score of a node for having the requested devices", rules.finite)
    memory: float = setting(50.0, "score of a node for having enough free memory", rules.finite)
    reputation: float = setting(30.0, "score of a node on which attempts always ended well", rules.finite)
    active_jobs: float = setting(-10.0, "score of a node for each job running there", rules.finite)
    shares: float = setting(
        500.0,
        "score of a node for placing a share on a device that is shared already, higher the fuller it gets",
        rules.finite,
    )
    linked: float = setting(
        100.0, "score of a node for giving a multi-device job devices connected by NVLink", rules.finite
    )
    affinity: float = setting(
        1000.0,
        "score of a node for the part of a job's node_affinity that it matches, minus the part of its "
        "node_anti_affinity",
        rules.rate,
    )
    same_switch: float = setting(
        200.0,
        "score of the nodes of one job for sharing a label switch=…, by the part that does; half of it for rack=…",
        rules.finite,
    )
    cached: float = setting(50.0, "score of a node for the part of a job's model and data in its cache", rules.rate)
    pack: float = setting(
        0.0,
        "score of a node that the job would fill; raised, with active_jobs at 0, it fills nodes one after the other",
        rules.finite,
    )


@dataclass(frozen=True, kw_only=True)
class QuarantineSettings:
    faults: int = setting(
        3, "a node that causes the end of attempts of this many jobs is quarantined; 0: never", rules.not_negative
    )
    window_seconds: float = setting(3600.0, "within this time", rules.positive_seconds)
