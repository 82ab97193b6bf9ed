"""Settings of who starts where, and of nodes that are given nothing."""

from dataclasses import dataclass

from config import value_rules as rules
from config.fields import setting


@dataclass(frozen=True, kw_only=True)
class SchedulerSettings:
    poll_seconds: float = setting(
        0.5, "how often planner and reconciler look at the database without being woken", rules.poll_seconds
    )
    resend_seconds: float = setting(5.0, "a dispatched attempt nobody claimed is announced again after this long")
    reserve_after_seconds: float = setting(
        1800.0, "a job that has waited this long gets a node kept for it, where from then on only short jobs start"
    )
    retry_base_seconds: float = setting(1.0, "pause before the first automatic retry; doubles each time")
    retry_max_seconds: float = setting(360.0, "longest pause before an automatic retry")


@dataclass(frozen=True, kw_only=True)
class ScoreSettings:
    """Weights of ``app.domain.scheduling.scoring.SCORES``, by their names."""

    device: float = setting(100.0, "points of a node for having the devices that a job asks for", rules.finite)
    memory: float = setting(50.0, "points of a node for having enough memory free", rules.finite)
    reputation: float = setting(30.0, "points of a node on which attempts always ended well", rules.finite)
    active_jobs: float = setting(-10.0, "points of a node for each job that runs there", rules.finite)
    shares: float = setting(
        500.0,
        "points of a node for taking a part of a device that is shared already, the more the fuller it gets",
        rules.finite,
    )
    linked: float = setting(
        100.0, "points of a node for giving a job of several devices such as NVLink connects", rules.finite
    )
    affinity: float = setting(
        1000.0,
        "points of a node for having what a job's node_affinity prefers, by the part that it has, less for what its "
        "node_anti_affinity avoids",
        rules.rate,
    )
    same_switch: float = setting(
        200.0,
        "points of the nodes of one job for sharing a label switch=…, by the part that does; half of it for rack=…",
        rules.finite,
    )
    cached: float = setting(
        50.0, "points of a node for having a job's model and data in its cache, by the part that it has", rules.rate
    )
    pack: float = setting(
        0.0,
        "points of a node that the job would fill; raised, with active_jobs at 0, it fills nodes one after the other",
        rules.finite,
    )


@dataclass(frozen=True, kw_only=True)
class QuarantineSettings:
    faults: int = setting(
        3, "a node that ends attempts of so many jobs by its own doing gets no more jobs; 0: never", rules.not_negative
    )
    window_seconds: float = setting(3600.0, "within this time", rules.positive_seconds)
