"""Watchdog settings: how long a supervisor tolerates ranks without progress and full disks."""

from dataclasses import dataclass

from config.values import rules
from config.values.fields import setting


@dataclass(frozen=True, kw_only=True)
class WatchSettings:
    step_seconds: float = setting(
        60.0, "ranks without a step for this long, and for step_factor times their slow steps, hang"
    )
    step_factor: float = setting(
        10.0, "up to this many times the 99th percentile of a job's own steps is no hang", rules.at_least_one
    )
    first_step_seconds: float = setting(1800.0, "the same until a job's first step, including the loading before it")
    section_seconds: float = setting(
        14_400.0,
        "the same for saving, evaluating, exporting and sections that a script announces without a limit of its own",
    )
    stuck_seconds: float = setting(
        60.0, "processes that survive SIGKILL for this long are abandoned and their devices taken out of service"
    )
    disk_full_seconds: float = setting(
        60.0, "a job whose checkpoints, logs or model do not fit on the disk for this long releases its devices"
    )
