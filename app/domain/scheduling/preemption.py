"""Preemption on one node: select the minimal set of victims that lets a waiting job start. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from app.domain.scheduling.filters import choose_devices, share_on, usable_of
from app.domain.scheduling.queue_order import QueuedJob
from app.domain.scheduling.resources import NOTHING, Device, NodeCapacity, Quantities
from app.domain.units import WHOLE


@dataclass(frozen=True, kw_only=True)
class Running:
    """A job that holds devices of a node. ``loss``: device-seconds of work that preempting it now would cost."""

    job_id: str
    project: str
    node: str
    priority: int
    kind: str
    devices: frozenset[int]
    attempt: int = 1
    queue: str = ""
    is_preemptible: bool = False
    share: int = WHOLE  # of each device, in hundredths
    elsewhere: float = 0.0  # devices that it holds on other nodes and releases together with these
    quantities: Quantities = field(default_factory=Quantities)
    may_be_preempted: bool = False  # it is preemptible, and its minimum runtime has passed
    is_stopping: bool = False  # it was asked to stop, for any reason, or is exporting
    loss: float = 0.0
    ends_in: float | None = None  # seconds, by its own estimate
    # Of a job with roles: its devices on all nodes by kind, of which `kind` is that of those on this one.
    by_kind: Mapping[str, float] = field(default_factory=dict)

    @property
    def amount(self) -> float:
        return len(self.devices) * self.share / WHOLE

    @property
    def released_devices(self) -> float:
        """Devices that its end releases on all nodes, as its project's quota counts them."""
        return self.amount + self.elsewhere


@dataclass(frozen=True, kw_only=True)
class Preemption:
    """This attempt of ``job_id`` is to release its devices for the job ``for_job``."""

    job_id: str
    attempt: int
    for_job: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Room:
    """A node where a job can start once ``ended`` have ended; of these, ``victims`` have to be preempted."""

    node: str
    devices: tuple[Device, ...]
    amounts: Quantities  # of the node's free amounts, what must stay free for the job
    ended: tuple[Running, ...] = ()
    victims: tuple[Running, ...] = ()
    seconds: float | None = None  # until the jobs end by themselves, if that is known


@dataclass(frozen=True)
class Preemptor:
    """A waiting job, and what it may take from running jobs now."""

    job: QueuedJob
    owed_quota: float = 0.0  # devices that its own project has to release before the quota admits the job
    lent: Mapping[str, float] = field(
        default_factory=dict
    )  # other project → borrowed devices that may be reclaimed from it
    asked: tuple[Running, ...] = ()  # victims on other nodes

    def may_take(self, victim: Running, taken: Sequence[Running] = ()) -> bool:
        """Whether the victim has lower priority in the same project, or belongs to a project that has borrowed."""
        if not victim.may_be_preempted or victim.is_stopping or victim.kind not in self.job.request.amounts:
            return False
        if victim.project == self.job.project:
            return victim.priority < self.job.priority
        lent = self.lent.get(victim.project, 0.0)
        # May reclaim more than was borrowed: a job is indivisible, and what was lent must be reclaimable.
        taken_back = (each.released_devices for each in (*self.asked, *taken) if each.project == victim.project)
        return round(lent - sum(taken_back), 6) > 0

    def room_on(self, node: NodeCapacity, running: Sequence[Running]) -> Room | None:
        """The room with the cheapest victims: a single job, or several ordered by loss.

        No job is preempted where jobs that are already stopping free enough.
        """
        stopping = [each for each in running if each.is_stopping]
        if self.owed_quota == 0 and (room := least_room(self.job, node, stopping)) is not None:
            return room
        asked = [each for each in running if self.may_take(each)]
        back = sum(len(each.devices) for each in (*stopping, *asked))
        if len(node.free) + len(node.parts) + back < self.job.request.device_count:
            return None
        cheapest = sorted(asked, key=lambda each: (each.loss, each.job_id))
        largest = sorted(asked, key=lambda each: (each.loss / max(each.amount, 1 / WHOLE), each.job_id))
        found = (self._needed(node, stopping, way) for way in (*([each] for each in asked), cheapest, largest))
        victims = min((way for way in found if way), key=lambda way: (_loss(way), len(way)), default=None)
        room = None if victims is None else least_room(self.job, node, stopping, victims)
        return None if room is None else replace(room, victims=tuple(victims or ()))

    def _needed(self, node: NodeCapacity, stopping: Sequence[Running], way: Sequence[Running]) -> list[Running]:
        """The victims that are needed, taken in this order; empty when all of them are not enough."""
        victims: list[Running] = []
        for each in way:
            if not self.may_take(each, victims):
                continue
            victims.append(each)
            if self._is_enough(node, stopping, victims):
                return self._least(node, stopping, victims)
        return []

    def _least(self, node: NodeCapacity, stopping: Sequence[Running], victims: list[Running]) -> list[Running]:
        """Drop victims that are not needed after all, the most expensive first."""
        for each in sorted(victims[:-1], key=lambda each: -each.loss):
            rest = [other for other in victims if other is not each]
            if self._is_enough(node, stopping, rest):
                victims = rest
        return victims

    def _is_enough(self, node: NodeCapacity, stopping: Sequence[Running], victims: Sequence[Running]) -> bool:
        """Whether the job fits on the node and within its project's quota once these have ended."""
        back = sum(each.released_devices for each in victims if each.project == self.job.project)
        return round(back - self.owed_quota, 6) >= 0 and fits_after(self.job, node, [*stopping, *victims])


def fits_after(job: QueuedJob, node: NodeCapacity, ended: Sequence[Running]) -> bool:
    """Whether the job could start on the node once these have ended. Hot path: does not choose devices."""
    if len(node.free) + len(node.parts) + sum(len(each.devices) for each in ended) < job.request.device_count:
        return False
    if node.max_jobs is not None and max(0, node.active_jobs - len(ended)) >= node.max_jobs:
        return False
    held, wanted = node.held, job.request.quantities
    if (
        node.cpu_cores - held.cpu_cores + sum(each.quantities.cpu_cores for each in ended) < wanted.cpu_cores
        or node.ram_mb - held.ram_mb + sum(each.quantities.ram_mb for each in ended) < wanted.ram_mb
        or node.storage_mb - held.storage_mb + sum(each.quantities.storage_mb for each in ended) < wanted.storage_mb
    ):
        return False
    back: dict[int, int] = {}
    for each in ended:
        for index in each.devices - node.out_of_service:
            back[index] = back.get(index, 0) + each.share
    missing = job.request.device_count
    left = [d for d in node.devices if d.index in back or d.index in node.free or d.index in node.parts]
    for device in usable_of(job.request, left):
        needed = share_on(job.request, device) if job.request.takes_part else WHOLE
        left_then = node.left(device.index) + back.get(device.index, 0)
        is_open = left_then >= WHOLE or node.is_open_to(device.index, job.request.tenant)
        missing -= is_open and left_then >= needed
        if missing <= 0:
            return True
    return False


def room_after(job: QueuedJob, node: NodeCapacity, ended: Sequence[Running]) -> Room | None:
    """The room for the job once these have ended; None when that is not enough."""
    if not fits_after(job, node, ended):
        return None
    after, back = node, NOTHING
    for each in ended:
        after, back = after.without(each.devices, each.share, each.quantities), back + each.quantities
    devices = choose_devices(job.request, after)
    if devices is None:
        return None
    return Room(node=node.name, devices=devices, ended=tuple(ended), amounts=job.request.quantities.beyond(back))


def least_room(
    job: QueuedJob, node: NodeCapacity, stopping: Sequence[Running], victims: Sequence[Running] = ()
) -> Room | None:
    """Use as few of the stopping jobs as possible: the devices of the others stay available to other jobs."""
    needed = list(stopping)
    if not fits_after(job, node, [*needed, *victims]):
        return None
    for each in stopping:
        rest = [other for other in needed if other is not each]
        if fits_after(job, node, [*rest, *victims]):
            needed = rest
    return room_after(job, node, [*needed, *victims])


def _loss(victims: Sequence[Running]) -> float:
    return sum(victim.loss for victim in victims)
