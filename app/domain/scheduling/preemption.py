"""Whose devices on a node a waiting job may take: no more than it needs, and none that do not help it. Pure."""

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
    share: int = WHOLE  # how much of each of them
    elsewhere: float = 0.0  # devices that it holds of other nodes, all of which it gives back with these
    quantities: Quantities = field(default_factory=Quantities)
    may_go: bool = False  # it is preemptible, and has run for as long as it may count on
    is_going: bool = False  # it was asked to stop, for whatever reason, or is nearly done
    loss: float = 0.0
    ends_in: float | None = None  # seconds, as it says itself

    @property
    def amount(self) -> float:
        return len(self.devices) * self.share / WHOLE

    @property
    def gives_back(self) -> float:
        """To its project, whose quota does not ask on which node."""
        return self.amount + self.elsewhere


@dataclass(frozen=True, kw_only=True)
class Preemption:
    """``job_id``, in this attempt of it, is to give its devices up for the job ``for_job``."""

    job_id: str
    attempt: int
    for_job: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Room:
    """A node where a job can start once ``gone`` have ended, of whom ``victims`` have to be asked for it."""

    node: str
    devices: tuple[Device, ...]
    amounts: Quantities  # what of the node's free amounts must stay for it
    gone: tuple[Running, ...] = ()
    victims: tuple[Running, ...] = ()
    seconds: float | None = None  # until then, where it only waits for others to end by themselves and that is known


@dataclass(frozen=True)
class Claim:
    """A waiting job, and what it may have of others now."""

    job: QueuedJob
    owing: float = 0.0  # devices of its own project's that have to be given up before the quota lets it start
    lent: Mapping[str, float] = field(default_factory=dict)  # other projects → what of theirs may be taken back
    asked: tuple[Running, ...] = ()  # for it on other nodes already

    def may_take(self, victim: Running, taken: Sequence[Running] = ()) -> bool:
        """Of its own project a less urgent one; of another what has borrowed, for what its own deserves."""
        if not victim.may_go or victim.is_going or victim.kind != self.job.request.device_kind:
            return False
        if victim.project == self.job.project:
            return victim.priority < self.job.priority
        lent = self.lent.get(victim.project, 0.0)
        # Also when it takes more than was borrowed: a job is not divided, and what is lent must come back.
        taken_back = (each.gives_back for each in (*self.asked, *taken) if each.project == victim.project)
        return round(lent - sum(taken_back), 6) > 0

    def room_on(self, node: NodeCapacity, running: Sequence[Running]) -> Room | None:
        """With the cheapest victims of those ways that are looked at: one job alone, or several by what they lose.

        Where somebody stops already and that is enough, nobody else has to.
        """
        going = [each for each in running if each.is_going]
        if self.owing == 0 and (room := least_room(self.job, node, going)) is not None:
            return room
        asked = [each for each in running if self.may_take(each)]
        back = sum(len(each.devices) for each in (*going, *asked))
        if len(node.free) + len(node.parts) + back < self.job.request.device_count:
            return None
        cheapest = sorted(asked, key=lambda each: (each.loss, each.job_id))
        largest = sorted(asked, key=lambda each: (each.loss / max(each.amount, 1 / WHOLE), each.job_id))
        found = (self._needed(node, going, way) for way in (*([each] for each in asked), cheapest, largest))
        victims = min((way for way in found if way), key=lambda way: (_loss(way), len(way)), default=None)
        room = None if victims is None else least_room(self.job, node, going, victims)
        return None if room is None else replace(room, victims=tuple(victims or ()))

    def _needed(self, node: NodeCapacity, going: Sequence[Running], way: Sequence[Running]) -> list[Running]:
        """Of these, taken one after the other, those that are needed; none when all of them are not enough."""
        victims: list[Running] = []
        for each in way:
            if not self.may_take(each, victims):
                continue
            victims.append(each)
            if self._is_enough(node, going, victims):
                return self._least(node, going, victims)
        return []

    def _least(self, node: NodeCapacity, going: Sequence[Running], victims: list[Running]) -> list[Running]:
        """Without those whom one that came later has made needless, the dearest first."""
        for each in sorted(victims[:-1], key=lambda each: -each.loss):
            rest = [other for other in victims if other is not each]
            if self._is_enough(node, going, rest):
                victims = rest
        return victims

    def _is_enough(self, node: NodeCapacity, going: Sequence[Running], victims: Sequence[Running]) -> bool:
        """Whether the job fits on the node, and its project's quota, when these have gone."""
        back = sum(each.gives_back for each in victims if each.project == self.job.project)
        return round(back - self.owing, 6) >= 0 and fits_after(self.job, node, [*going, *victims])


def fits_after(job: QueuedJob, node: NodeCapacity, gone: Sequence[Running]) -> bool:
    """Whether the job could start on the node when these have gone; asked far more often than where on it."""
    if len(node.free) + len(node.parts) + sum(len(each.devices) for each in gone) < job.request.device_count:
        return False
    if node.max_jobs is not None and max(0, node.active_jobs - len(gone)) >= node.max_jobs:
        return False
    held, wanted = node.held, job.request.quantities
    if (
        node.cpu_cores - held.cpu_cores + sum(each.quantities.cpu_cores for each in gone) < wanted.cpu_cores
        or node.ram_mb - held.ram_mb + sum(each.quantities.ram_mb for each in gone) < wanted.ram_mb
        or node.storage_mb - held.storage_mb + sum(each.quantities.storage_mb for each in gone) < wanted.storage_mb
    ):
        return False
    back: dict[int, int] = {}
    for each in gone:
        for index in each.devices - node.out_of_service:
            back[index] = back.get(index, 0) + each.share
    missing = job.request.device_count
    left = [d for d in node.devices if d.index in back or d.index in node.free or d.index in node.parts]
    for device in usable_of(job.request, left):
        needed = share_on(job.request, device) if job.request.takes_part else WHOLE
        missing -= node.left(device.index) + back.get(device.index, 0) >= needed
        if missing <= 0:
            return True
    return False


def room_after(job: QueuedJob, node: NodeCapacity, gone: Sequence[Running]) -> Room | None:
    """The node for the job when these have gone; None when that is not enough."""
    if not fits_after(job, node, gone):
        return None
    after, back = node, NOTHING
    for each in gone:
        after, back = after.without(each.devices, each.share, each.quantities), back + each.quantities
    devices = choose_devices(job.request, after)
    if devices is None:
        return None
    return Room(node=node.name, devices=devices, gone=tuple(gone), amounts=job.request.quantities.beyond(back))


def least_room(
    job: QueuedJob, node: NodeCapacity, going: Sequence[Running], victims: Sequence[Running] = ()
) -> Room | None:
    """Counting on no more of those that go already than it has to: the others are there for somebody else."""
    needed = list(going)
    if not fits_after(job, node, [*needed, *victims]):
        return None
    for each in going:
        rest = [other for other in needed if other is not each]
        if fits_after(job, node, [*rest, *victims]):
            needed = rest
    return room_after(job, node, [*needed, *victims])


def _loss(victims: Sequence[Running]) -> float:
    return sum(victim.loss for victim in victims)
