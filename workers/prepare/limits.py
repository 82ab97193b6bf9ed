"""What an attempt may use on this node: the job's limits, and the operator's where the job has none."""

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from app.domain.spec.frameworks.requirements import FULL, OWN_SCOPE, READ_LIMITS, WRITE_LIMITS, how_to_offer
from app.domain.spec.model import ResourceConfig, ResourceLimits
from app.domain.spec.role_documents import document_of
from app.services.attempts.work_orders import WorkOrder
from config.settings import Settings
from workers.attempt_failed import AttemptFailed
from workers.rank.resource_limits import LOCKED_MB, OPEN_FILES, PROCESSES, STACK_MB, most_possible
from workers.sandbox import control_groups
from workers.sandbox.control_groups import CONTROLLERS, DISKS, GroupLimits, Hierarchies, find_hierarchies
from workers.sandbox.cores import OwnCores, take_cores
from workers.sandbox.disk_rates import DiskRates
from workers.sandbox.sandbox import BUBBLEWRAP, Sandbox

# Two cores bore 128 processes of a job that all compute; 512 cost other jobs an attempt
# (docs/benchmarks/2026-11-28-hostile.md). Ranks need more where they have threads for each group of ranks, as those of
# Megatron.
_PER_CORE, _PER_RANK = 64, 256

# The first version of Linux that counts the processes of a user in each user namespace apart.
_COUNTS_APART = (5, 14)


@dataclass(frozen=True, kw_only=True)
class LimitsHere:
    """Limits of an attempt on this node, and what holds them."""

    limits: GroupLimits  # of all processes together
    groups: Hierarchies
    cores: OwnCores
    of_processes: Mapping[str, Any]  # of each, for workers.rank.resource_limits


def limits_here(work: WorkOrder, settings: Settings, sandbox: Sandbox) -> LimitsHere:
    """Raises AttemptFailed where this node can't hold a limit that the job requires."""
    resources, groups = work.document.resource_config, find_hierarchies()
    if FULL in settings.node.sandbox_least and groups.parents.keys() != set(CONTROLLERS):  # lost since it was placed
        raise AttemptFailed("INTERNAL", f"this node can make no control groups, and its operator demands {FULL} of it")
    settings = with_most_processes(settings, ranks=len(work.devices))
    limits = limits_of(resources, settings, groups)
    of_processes = resource_limits_of(resources, settings, groups, sandbox)
    cores = own_cores(reserved_cores(work), resources, settings)
    return LimitsHere(
        limits=replace(limits, cores=cores.numbers),
        groups=groups,
        cores=cores,
        of_processes=of_processes | cores.as_limit,
    )


def with_most_processes(settings: Settings, *, ranks: int) -> Settings:
    """The settings, with a number of processes where they leave it to the machine and the job."""
    if settings.node.max_processes >= 0:
        return settings
    most = max(_PER_RANK * max(ranks, 1), _PER_CORE * len(os.sched_getaffinity(0)))
    return replace(settings, node=replace(settings.node, max_processes=most))


def limits_of(resources: ResourceConfig, settings: Settings, groups: Hierarchies) -> GroupLimits:
    """Raises AttemptFailed where this node can't hold a limit that the job requires."""
    asked = resources.limits
    wanted = GroupLimits(
        memory_mb=asked.ram_mb, cpus=asked.cpu_cores, processes=asked.processes, disks=_disk_rates(asked)
    )
    if asked.required:
        _refuse_rates_without_groups(asked, groups)
    if asked.required and (missing := sorted(wanted.controllers - {DISKS} - groups.parents.keys())):
        raise AttemptFailed(
            "INTERNAL",
            f"this node can't hold resource_config.limits: it may make no control groups for {', '.join(missing)}; run "
            f"its worker as root, or in a scope of its own ({OWN_SCOPE})",
        )
    return replace(
        wanted,
        memory_mb=wanted.memory_mb or _default_memory(resources, settings),
        processes=wanted.processes or settings.node.max_processes,
    )


def _disk_rates(asked: ResourceLimits) -> DiskRates:
    return DiskRates(
        read_bytes=asked.read_mb_per_second << 20,
        written_bytes=asked.write_mb_per_second << 20,
        reads=asked.reads_per_second,
        writes=asked.writes_per_second,
    )


def _refuse_rates_without_groups(asked: ResourceLimits, groups: Hierarchies) -> None:
    """Raises AttemptFailed."""
    wanted = {READ_LIMITS: asked.bind_reads, WRITE_LIMITS: asked.bind_writes}
    for word, is_asked in wanted.items():
        if is_asked and word not in groups.held_rates:
            raise AttemptFailed("INTERNAL", f"this node can't hold resource_config.limits: {how_to_offer(word)}")


def resource_limits_of(
    resources: ResourceConfig, settings: Settings, groups: Hierarchies, sandbox: Sandbox
) -> dict[str, Any]:
    """Limits of the kernel for each process of the attempt. Raises AttemptFailed where it can't have what it asks."""
    asked = resources.limits
    found = {OPEN_FILES: asked.open_files, STACK_MB: asked.stack_mb, LOCKED_MB: asked.locked_mb}
    for name, amount in found.items():
        most = most_possible(name)
        if asked.required and most is not None and amount > most:
            raise AttemptFailed(
                "INTERNAL",
                f"resource_config.limits.{name} is {amount}, and this node may give {most}; ask for less, "
                f"or raise the limit of the worker ({_IN_A_UNIT[name]} in its systemd unit, `ulimit -H` in a shell)",
            )
    if control_groups.PROCESSES not in groups.parents and _counts_processes(sandbox):
        found[PROCESSES] = asked.processes or settings.node.max_processes
    return {name: amount for name, amount in found.items() if amount}


def reserved_cores(work: WorkOrder) -> int:
    """Of this node: of all instances of roles together, none if one of them reserves none and may have any."""
    if not work.document.tasks:
        return work.document.resource_config.cpu_cores
    each = {role.role: document_of(work.document, role).resource_config.cpu_cores for role in work.document.tasks}
    here = [each[instance.role] for instance in work.instances]
    return sum(here) if all(here) else 0


def own_cores(reserved: int, resources: ResourceConfig, settings: Settings) -> OwnCores:
    """As many as are reserved, and those up to the job's limit; none unless the operator gives jobs some."""
    wanted = math.ceil(max(reserved, resources.limits.cpu_cores)) if reserved else 0
    if not settings.node.pin_cores:
        return OwnCores()
    return take_cores(settings.data.dir.resolve(), wanted, os.sched_getaffinity(0))


_IN_A_UNIT = {OPEN_FILES: "LimitNOFILE=", STACK_MB: "LimitSTACK=", LOCKED_MB: "LimitMEMLOCK="}


def _counts_processes(sandbox: Sandbox) -> bool:
    """Whether the kernel's limit of processes counts those of the attempt alone, where it holds.

    It counts by user. A worker that is root gives attempts users of their own; where it can't, an attempt is root
    itself, for whom the limit has no effect.
    """
    release = tuple(map(int, re.findall(r"\d+", os.uname().release)[:2]))
    return sandbox.kind == BUBBLEWRAP and (os.geteuid() == 0 or release >= _COUNTS_APART)


def _default_memory(resources: ResourceConfig, settings: Settings) -> int:
    """The operator's limit; a job may use what is reserved for it in any case."""
    most = settings.node.max_ram_mb
    return max(most, resources.ram_min_mb) if most else 0
