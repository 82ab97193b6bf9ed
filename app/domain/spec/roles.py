"""The roles of a job whose processes differ, as sections of the job document."""

import re
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from app.domain.spec.image import Image
from app.domain.spec.packages import Packages
from app.domain.spec.section import Section

JOB, TASK = "job", "task"  # Role.restart
SAME_NODE, OTHER_NODES = "same_node", "other_nodes"  # Affinity.where
ROLE, INSTANCE = "role", "instance"  # Role.world, which may also be JOB
SCRIPT, TRAIN, ROLLOUT = "script", "train", "rollout"  # Role.program
PROGRAMS = (SCRIPT, TRAIN, ROLLOUT)
ROLE_NAME = re.compile(r"[a-z0-9-]{1,30}")  # Role.role

_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True, kw_only=True)
class RoleResources(Section):
    """What each instance of a role takes: the fields of `ResourceConfig` that a role may have.

    ``image``: None stands for the job's.
    """

    gpu_count: int = 1
    device_type: str = "auto"
    gpu_type: str | tuple[str, ...] | None = None
    gpu_memory_min_mb: int = 0
    cpu_cores: int = 0
    ram_min_mb: int = 0
    storage_min_mb: int = 0
    required_node_labels: tuple[str, ...] = ()
    forbidden_node_labels: tuple[str, ...] = ()
    image: Image | None = None


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
class Affinity(Section):
    """Where the instances of a role are, seen from those of another: each on a node that has one, or none on one.

    Of the role itself: all on one node, or each on a node of its own. Where it is not ``required``, a job that can't
    start so starts otherwise.
    """

    role: str = ""
    where: str = SAME_NODE
    required: bool = True


@dataclass(frozen=True, kw_only=True)
class JobRole(Section):
    """A group of equal processes of a job, with a program and devices of its own; ``count`` instances of it run.

    ``depends_on`` names roles that have started before this one is started. ``restart``: of an instance that fails,
    alone or with the whole job. A ``sidecar`` is stopped when the instances of all other roles have ended.
    ``program``: the script or command of a CUSTOM job, or the part of a built-in trainer that the role is.
    ``world``: the ranks that torchrun's variables count, of the role, of all roles with ``job``, or of each instance.
    """

    role: str = ""
    program: str = SCRIPT
    count: int = 1
    resource_config: RoleResources = RoleResources()
    training_config: RoleTraining = RoleTraining()
    depends_on: tuple[str, ...] = ()
    restart: str = JOB
    sidecar: bool = False
    affinity: tuple[Affinity, ...] = ()
    world: str = ROLE

    @property
    def is_sidecar(self) -> bool:
        """Rollouts are sidecars by themselves: they end no training, and none of them outlives it."""
        return self.sidecar or self.program == ROLLOUT


def in_world_of(roles: Sequence[JobRole], role: JobRole) -> frozenset[str]:
    """The names of the roles whose ranks share a world with those of this one, itself among them."""
    others = (each.role for each in roles if each.world == JOB) if role.world == JOB else ()
    return frozenset({role.role, *others})


def together_with(one: _Key, beside: Mapping[_Key, Collection[_Key]]) -> frozenset[_Key]:
    """What every node of a role has, itself included: those beside it, and those beside these."""
    found, line = {one}, [one]
    while line:
        further = {*beside.get(line.pop(), ())} - found
        found |= further
        line += further
    return frozenset(found)


def numbered(count: int, what: str) -> str:
    """In words, how many there are and which numbers they have: ``2 instances, 0 to 1``."""
    return f"one {what}, 0" if count == 1 else f"{count} {what}s, 0 to {count - 1}"


def instances(roles: Sequence[JobRole]) -> Iterator[tuple[JobRole, int]]:
    """(role, index) of every instance, in the order in which they are numbered."""
    for role in roles:
        yield from ((role, index) for index in range(role.count))
