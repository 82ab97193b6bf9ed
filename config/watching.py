"""Settings of what a supervisor watches its ranks and its disks for."""

from dataclasses import dataclass

from config import value_rules as rules
from config.fields import setting


@dataclass(frozen=True, kw_only=True)
class WatchSettings:
    step_seconds: float = setting(
        60.0, "ranks that make no step for this long, and for step_factor times their slow steps, hang"
    )
    step_factor: float = setting(
        10.0, "so many times the 99th percentile of a job's own steps is no hang yet", rules.at_least_one
    )
    first_step_seconds: float = setting(1800.0, "the same until a job's first step, with what it loads before")
    section_seconds: float = setting(
        14_400.0, "the same for saving, evaluating, exporting and what a script announces without a limit of its own"
    )
    stuck_seconds: float = setting(
        60.0, "processes that SIGKILL has not ended for this long are left behind, their devices out of service"
    )
    disk_full_seconds: float = setting(
        60.0, "a job whose checkpoints, logs or model find no room on the disk for this long lets its devices go"
    )
