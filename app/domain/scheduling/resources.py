"""Resource requests of jobs and capacities of nodes; amounts in MB and whole devices."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property
from typing import NamedTuple

from app.domain.spec.frameworks.requirements import needed
from app.domain.spec.image import NO_IMAGE, Image
from app.domain.spec.inference import TRAINING
from app.domain.spec.model import JobDocument
from app.domain.spec.role_documents import document_of, image_of_role
from app.domain.spec.roles import TRAIN, Affinity
from app.domain.units import WHOLE

_SLICE = "-mig-"
_SLICES = 1000  # more than the slices of a GPU or the GPUs of a machine
MIG_PROFILE = re.compile(r"[1-7]g\.\d{1,4}gb(\+me)?")
_NOISE = re.compile(r"|nvidia|amd|intel|tesla|geforce|instinct|sxm\d*|pcie|nvl|hbm\w*")


@cache  # few types, but many new Device objects in every pass
def _chip_and_slice(kind: str) -> tuple[str, str]:
    chip, _, profile = kind.partition(_SLICE)
    return chip, profile


@dataclass(frozen=True, kw_only=True)
class Device:
    """One schedulable unit of a node: a GPU, a MIG slice (type ``h100-mig-1g.10gb``), a simulated device, or a CPU
    slot (type ``cpu``).
    """

    index: int
    type: str
    memory_mb: int = 0
    simulated: bool = False
    uuid: str = ""  # of a MIG slice: the only identifier that CUDA accepts for it
    link_group: int | None = None  # equal for devices that NVLink connects; None: not connected or unknown

    @property
    def is_cpu(self) -> bool:
        return self.type == "cpu"

    @property
    def chip(self) -> str:
        return _chip_and_slice(self.type)[0]

    @property
    def mig_profile(self) -> str:
        """The MIG profile; empty for a device that is not a MIG slice."""
        return _chip_and_slice(self.type)[1]


@dataclass(frozen=True, kw_only=True)
class Quantities:
    """Resources that are shared by amount, not as whole devices."""

    cpu_cores: int = 0
    ram_mb: int = 0
    storage_mb: int = 0

    def __add__(self, other: "Quantities") -> "Quantities":
        return Quantities(
            cpu_cores=self.cpu_cores + other.cpu_cores,
            ram_mb=self.ram_mb + other.ram_mb,
            storage_mb=self.storage_mb + other.storage_mb,
        )

    def __sub__(self, other: "Quantities") -> "Quantities":
        return Quantities(
            cpu_cores=self.cpu_cores - other.cpu_cores,
            ram_mb=self.ram_mb - other.ram_mb,
            storage_mb=self.storage_mb - other.storage_mb,
        )

    def beyond(self, other: "Quantities") -> "Quantities":
        """The part of these amounts that exceeds ``other``."""
        left = self - other
        return Quantities(
            cpu_cores=max(0, left.cpu_cores), ram_mb=max(0, left.ram_mb), storage_mb=max(0, left.storage_mb)
        )


NOTHING = Quantities()
UNKNOWN = 1.0  # the reputation of a node without a history


class GpuType(NamedTuple):
    """An acceptable chip, as nodes name it (empty: any), and the memory in MB that was named with it, or 0."""

    name: str
    memory_mb: int = 0


@dataclass(frozen=True, kw_only=True)
class RoleRequest:
    """``count`` instances of a role of a job, each with the resources of ``each``, which has no roles.

    ``alike``: the devices of all of them are of one type. ``image``: that of a node with them.
    """

    role: str
    count: int
    each: "Request"
    affinity: tuple[Affinity, ...] = ()
    alike: bool = False
    image: Image = NO_IMAGE


@dataclass(frozen=True, kw_only=True)
class Request:
    """The resources of a job on one node, and the number of such nodes.

    With ``roles`` the job has their instances instead, packed onto few nodes; ``device_kind`` is then cuda where any
    instance has GPUs, and ``device_count`` the number of devices of this kind.
    """

    node_count: int = 1
    device_count: int = 1
    device_kind: str = "cpu"  # cuda | cpu; request_of resolves `auto`
    gpu_types: tuple[GpuType, ...] = ()  # any of these; empty: any GPU
    gpu_memory_min_mb: int = 0
    gpu_share: int = WHOLE  # hundredths of its device; a job with several devices gets whole ones
    mig_profile: str = ""  # a MIG slice instead of a GPU
    gpu_memory_request_mb: int = 0  # instead of gpu_share: the share of the device that has this memory
    cpu_cores: int = 0
    ram_min_mb: int = 0
    storage_min_mb: int = 0
    required_capabilities: frozenset[str] = frozenset()
    demanded: frozenset[str] = frozenset()  # those of them that the project alone requires; equal in many projects
    # Labels or names of nodes: all required, none forbidden; preferred and avoided ones count in the score.
    required_labels: frozenset[str] = frozenset()
    forbidden_labels: frozenset[str] = frozenset()
    preferred_labels: frozenset[str] = frozenset()
    avoided_labels: frozenset[str] = frozenset()
    trains: bool = True  # False: a batch, features or an evaluation
    roles: tuple[RoleRequest, ...] = ()
    tenant: str = ""  # project of a job that takes a part of a device: it shares with this one alone; empty: with any

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        # Hot path: hashed several times for each of many thousand jobs.
        return hash(tuple(getattr(self, each.name) for each in fields(self)))

    @property
    def takes_part(self) -> bool:
        """Whether it may share its device with other jobs."""
        return self.gpu_share < WHOLE or self.gpu_memory_request_mb > 0

    @cached_property
    def amount(self) -> float:
        """Number of devices that it takes; a request by memory counts as whole until a device is chosen."""
        return self.node_count * self.device_count * self.gpu_share / WHOLE

    @cached_property
    def amounts(self) -> Mapping[str, float]:
        """Number of devices by kind: a job with roles may have GPUs and CPU slots."""
        if not self.roles:
            return {self.device_kind: self.amount}
        found = dict.fromkeys((each.each.device_kind for each in self.roles), 0.0)
        for each in self.roles:
            found[each.each.device_kind] += each.count * each.each.device_count
        return found

    @property
    def is_gang(self) -> bool:
        """Whether its devices are chosen together, on several nodes or for several instances."""
        return self.node_count > 1 or bool(self.roles)

    @property
    def gpu_type_names(self) -> list[str]:
        """The acceptable chips without duplicates; empty when any will do."""
        names = list(dict.fromkeys(each.name for each in self.gpu_types))
        return [] if "" in names else names

    @property
    def gpu_type(self) -> str:
        """The acceptable chips in words: ``a100 or h100``."""
        return " or ".join(self.gpu_type_names)

    @cached_property
    def for_devices(self) -> "Request":
        """The request reduced to devices and capabilities, without amounts, labels and preferences."""
        none = frozenset[str]()
        bare = self.without_preferences
        return replace(bare, cpu_cores=0, ram_min_mb=0, storage_min_mb=0, required_labels=none, forbidden_labels=none)

    @property
    def has_preferences(self) -> bool:
        return bool(self.preferred_labels or self.avoided_labels)

    @cached_property
    def without_preferences(self) -> "Request":
        """The request reduced to its requirements."""
        if not self.has_preferences:
            return self
        return replace(self, preferred_labels=frozenset(), avoided_labels=frozenset())

    @cached_property
    def quantities(self) -> Quantities:
        return Quantities(cpu_cores=self.cpu_cores, ram_mb=self.ram_min_mb, storage_mb=self.storage_min_mb)


@dataclass(frozen=True, kw_only=True)
class NodeCapacity:
    """A node as the planner sees it: its capacity, and which of its devices are free.

    A device is in ``free`` when it is unused, and in ``parts`` when some share of it is still free.
    """

    name: str
    devices: tuple[Device, ...]
    free: frozenset[int]  # device indices
    cpu_cores: int = 0
    ram_mb: int = 0
    storage_mb: int = 0
    held: Quantities = NOTHING  # by running jobs that requested amounts; the rest is free
    capabilities: frozenset[str] = frozenset()
    labels: frozenset[str] = frozenset()
    out_of_service: frozenset[int] = frozenset()  # devices that are not free although no job holds them
    reserved: frozenset[int] = frozenset()  # devices that are free, but reserved for jobs that come first
    active_jobs: int = 0
    max_jobs: int | None = None  # at a time; None: unlimited
    accepts_training: bool = True
    accepts_inference: bool = True  # batches, features and evaluations
    no_sandbox: str = ""  # why it can start no job; none of its devices is free in that case
    reputation: float = UNKNOWN
    arch: str = ""  # of its processor, as in `uname -m`; empty: not reported
    parts: Mapping[int, int] = field(default_factory=dict)  # device → allocated hundredths, less than all
    tenants: Mapping[int, str] = field(default_factory=dict)  # shared device → the project of its jobs; "": of several
    mixes_projects: bool = False  # jobs of several projects may share a device; ``tenants`` stays empty

    @property
    def has_room(self) -> bool:
        """Whether any device has a free share."""
        return bool(self.free or self.parts)

    def left(self, index: int) -> int:
        """Free hundredths of the device."""
        return WHOLE if index in self.free else WHOLE - self.parts.get(index, WHOLE)

    def is_open_to(self, index: int, tenant: str) -> bool:
        """Whether a job of this tenant may take a part of the device, as far as those go that have the rest."""
        return not tenant or index in self.free or self.tenants.get(index, tenant) == tenant

    def given(self, indices: Iterable[int], share: int = WHOLE, tenant: str = "") -> "NodeCapacity":
        """The node after ``share`` of each device is allocated, or released when ``share`` is negative."""
        free, parts, tenants = set(self.free), dict(self.parts), dict(self.tenants)
        for index in indices:
            left = self.left(index) - share
            if tenant and index in free and not self.mixes_projects:
                tenants[index] = tenant
            free.discard(index)
            parts.pop(index, None)
            if left >= WHOLE:
                free.add(index)
                tenants.pop(index, None)
            elif left > 0:
                parts[index] = WHOLE - left
        return replace(self, free=frozenset(free), parts=parts, tenants=tenants)

    def with_job(self, indices: Iterable[int], share: int, amounts: Quantities, tenant: str = "") -> "NodeCapacity":
        """The node after a job with these devices, share and amounts has started."""
        given = self.given(indices, share, tenant)
        return replace(given, held=self.held + amounts, active_jobs=self.active_jobs + 1)

    @property
    def known_as(self) -> frozenset[str]:
        """Labels and name, which jobs may require, forbid, prefer or avoid."""
        return self.labels | {self.name}

    def without(self, devices: frozenset[int], share: int, amounts: Quantities) -> "NodeCapacity":
        """The node after a job with these devices, share and amounts has ended."""
        return replace(
            self.given(devices - self.out_of_service, -share),
            held=self.held - amounts,
            active_jobs=max(0, self.active_jobs - 1),
        )


def normalise_gpu_type(raw: str) -> tuple[str, int]:
    """(type, memory in MB or 0) of a GPU's name: ``NVIDIA A100-SXM4-80GB`` and ``A100-80GB`` → (``a100``, 81920).

    Vendor and form factor are dropped: users name a chip and a memory size, drivers report much more.
    """
    memory_mb, words = 0, []
    for word in re.split(r"[\s_-]+", raw.strip().lower()):
        if match := re.fullmatch(r"(\d+)gi?b?", word):
            memory_mb = int(match[1]) * 1024
        elif not _NOISE.fullmatch(word):
            words.append(word)
    return "-".join(words), memory_mb


def slice_of(kind: str, mig_profile: str) -> str:
    """The device type of a MIG slice of this kind of GPU."""
    return f"{kind}{_SLICE}{mig_profile}"


def slice_index(gpu: int, number: int) -> int:
    """The device index of a slice; it is stable when slices of other GPUs are created or removed."""
    return _SLICES * (gpu + 1) + number


def gpu_of(index: int) -> int:
    """The NVML index of the GPU that the device is, or is a slice of."""
    return index // _SLICES - 1 if index >= _SLICES else index


def gpu_types_of(raw: str | Sequence[str]) -> tuple[GpuType, ...]:
    """Parse one name or several, without duplicates, in order."""
    names = [raw] if isinstance(raw, str) else raw
    return tuple(dict.fromkeys(GpuType(*normalise_gpu_type(name)) for name in names))


def request_of(document: JobDocument, *, has_gpus: bool) -> Request:
    """The resource request of a job document; ``auto`` becomes CUDA where any node has a GPU, else CPU."""
    if document.tasks:
        return _of_roles(document, has_gpus=has_gpus)
    resources, scheduling = document.resource_config, document.scheduling_config
    gpu_types = gpu_types_of(resources.gpu_type or ())
    fraction, memory_mb = resources.gpu_fraction, resources.gpu_memory_request_mb
    mig_profile = resources.mig_profile or ""
    least_mb = resources.gpu_memory_min_mb
    is_of_gpu = fraction or memory_mb or mig_profile or least_mb
    kind = resources.device_type
    if kind == "auto":
        kind = "cuda" if has_gpus or any(each.name for each in gpu_types) or is_of_gpu else "cpu"
    return Request(
        node_count=resources.node_count,
        device_count=resources.gpu_count,
        device_kind=kind,
        gpu_types=gpu_types,
        gpu_memory_min_mb=least_mb,
        gpu_share=round(WHOLE * fraction) if fraction else WHOLE,
        gpu_memory_request_mb=memory_mb,
        mig_profile=mig_profile,
        cpu_cores=resources.cpu_cores,
        ram_min_mb=resources.ram_min_mb,
        storage_min_mb=resources.storage_min_mb,
        required_capabilities=frozenset(scheduling.required_capabilities) | needed(document),
        required_labels=frozenset(resources.required_node_labels),
        forbidden_labels=frozenset(resources.forbidden_node_labels),
        preferred_labels=frozenset(resources.node_affinity),
        avoided_labels=frozenset(resources.node_anti_affinity),
        trains=document.kind == TRAINING,
    )


def _of_roles(document: JobDocument, *, has_gpus: bool) -> Request:
    found = tuple(
        RoleRequest(
            role=role.role,
            count=role.count,
            each=request_of(document_of(document, role), has_gpus=has_gpus),
            affinity=role.affinity,
            alike=role.program == TRAIN,  # its ranks wait for each other in every step
            image=image_of_role(document, role),
        )
        for role in document.tasks
    )
    kind = "cuda" if any(each.each.device_kind == "cuda" for each in found) else "cpu"
    return replace(
        found[0].each,
        roles=found,
        device_kind=kind,
        device_count=sum(each.count * each.each.device_count for each in found if each.each.device_kind == kind),
        cpu_cores=sum(each.count * each.each.cpu_cores for each in found),
        ram_min_mb=sum(each.count * each.each.ram_min_mb for each in found),
        storage_min_mb=sum(each.count * each.each.storage_min_mb for each in found),
        gpu_types=(),
        gpu_memory_min_mb=0,
        required_capabilities=frozenset[str]().union(*(each.each.required_capabilities for each in found)),
        required_labels=frozenset(document.resource_config.required_node_labels),
        forbidden_labels=frozenset(document.resource_config.forbidden_node_labels),
    )
