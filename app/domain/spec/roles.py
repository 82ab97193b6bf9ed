"""The roles of a job whose processes differ, as sections of the job document."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.domain.spec.packages import Packages
from app.domain.spec.section import Section

JOB, TASK = "job", "task"  # Role.restart
SCRIPT, TRAIN, ROLLOUT = "script", "train", "rollout"  # Role.program
PROGRAMS = (SCRIPT, TRAIN, ROLLOUT)


@dataclass(frozen=True, kw_only=True)
class RoleResources(Section):
    """What each instance of a role takes: the fields of `ResourceConfig` that a role may have."""

    gpu_count: int = 1
    device_type: str = "auto"
    gpu_type: str | tuple[str, ...] | None = None
    gpu_memory_min_mb: int = 0
    cpu_cores: int = 0
    ram_min_mb: int = 0
    storage_min_mb: int = 0
    required_node_labels: tuple[str, ...] = ()
    forbidden_node_labels: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RoleTraining(Section):
    """The program of a role; what it leaves out is the job's.

    ``environment`` is added to the job's; ``config`` has the number of processes of an instance, as
    ``framework.distributed.config`` has for a node.
    """

    custom_script_path: str | None = None
    custom_arguments: tuple[str, ...] | None = None
    custom_command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    packages: Packages | None = None
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Role(Section):
    """A group of equal processes of a job, with a program and devices of its own; ``count`` instances of it run.

    ``depends_on`` names roles that have started before this one is started. ``restart``: of an instance that fails,
    alone or with the whole job. A ``sidecar`` is stopped when the instances of all other roles have ended.
    ``program``: the script or command of a CUSTOM job, or the part of a built-in trainer that the role is.
    """

    role: str = ""
    program: str = SCRIPT
    count: int = 1
    resource_config: RoleResources = RoleResources()
    training_config: RoleTraining = RoleTraining()
    depends_on: tuple[str, ...] = ()
    restart: str = JOB
    sidecar: bool = False

    @property
    def is_sidecar(self) -> bool:
        """Rollouts are sidecars by themselves: they end no training, and none of them outlives it."""
        return self.sidecar or self.program == ROLLOUT


def instances(roles: Sequence[Role]) -> Iterator[tuple[Role, int]]:
    """(role, index) of every instance, in the order in which they are numbered."""
    for role in roles:
        yield from ((role, index) for index in range(role.count))
