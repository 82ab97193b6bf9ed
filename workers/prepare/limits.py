"""What an attempt may use on this node: the job's limits, and the operator's where the job has none."""

from dataclasses import replace

from app.domain.spec.model import ResourceConfig
from config.settings import Settings
from workers.attempt_failed import AttemptFailed
from workers.sandbox.control_groups import Hierarchies, Limits


def limits_of(resources: ResourceConfig, settings: Settings, groups: Hierarchies) -> Limits:
    """Raises AttemptFailed where this node can't hold a limit that the job requires."""
    asked = resources.limits
    wanted = Limits(memory_mb=asked.ram_mb, cpus=asked.cpu_cores, processes=asked.processes)
    if asked.required and (missing := sorted(wanted.controllers - groups.parents.keys())):
        raise AttemptFailed(
            "INTERNAL",
            f"this node can't hold resource_config.limits: it may make no control groups for {', '.join(missing)}; run "
            "its worker as root, or in a systemd unit with Delegate=yes",
        )
    return replace(
        wanted,
        memory_mb=wanted.memory_mb or _default_memory(resources, settings),
        processes=wanted.processes or settings.node.max_processes,
    )


def _default_memory(resources: ResourceConfig, settings: Settings) -> int:
    """The operator's limit; a job may use what is reserved for it in any case."""
    most = settings.node.max_ram_mb
    return max(most, resources.ram_min_mb) if most else 0
