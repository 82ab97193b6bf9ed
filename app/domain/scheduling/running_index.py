"""Running jobs by node: where preemption or completion will free capacity for a waiting job. Pure."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from math import inf

from app.domain.scheduling.gang_preemption import GangPreemption
from app.domain.scheduling.node_classes import CandidateNodes
from app.domain.scheduling.preemption import Preemptor, Room, Running, least_room, room_after
from app.domain.scheduling.queue_order import QueuedJob
from app.domain.scheduling.resources import NOTHING, NodeCapacity
from app.domain.scheduling.roles import rooms
from app.domain.scheduling.serving_order import PassAccounts

# Budget of nodes examined for victims in one pass, about a second. One job may use at most half of the rest, so that
# jobs at the front of the line for which preemption does not help can't use it up in every pass.
MAX_EXAMINED = 50_000
# Nodes examined for one job after a first solution was found; nodes with the least expected loss come first.
_EXAMINED_AFTER_FIRST = 32

_Soonest = tuple[float, int, str]  # (seconds, jobs, node)


class RunningIndex:
    """Index of the running jobs; devices reserved for one waiting job are not available to another."""

    def __init__(
        self, running: Iterable[Running], nodes: Mapping[str, NodeCapacity], *, budget: int = MAX_EXAMINED
    ) -> None:
        self._nodes = nodes  # live mapping
        self._on: dict[str, list[Running]] = {}
        self._nodes_of: dict[str, list[str]] = {}  # by job id
        self._stopping: dict[tuple[str, str], float] = {}  # (project, kind) → devices that are being released
        self._stopping_on: set[str] = set()
        # kind → (loss, node, project, priority) of each preemptible job, the least loss first
        self._asked: dict[str, list[tuple[float, str, str, int]]] = {}
        self._ends: dict[str, _Ends] = {}
        self._soonest_of: dict[int, list[_Soonest]] = {}
        self._soonest_at: dict[int, dict[str, _Soonest]] = {}  # the same by node, to locate entries of the list
        self._budget = budget
        for each in sorted(running, key=lambda each: each.job_id):
            self._on.setdefault(each.node, []).append(each)
            self._nodes_of.setdefault(each.job_id, []).append(each.node)
            if each.is_stopping:
                self._count_stopping(each)
            elif each.may_be_preempted:
                asked = self._asked.setdefault(each.kind, [])
                asked.append((each.loss, each.node, each.project, each.priority))
        for asked in self._asked.values():
            asked.sort()
        self._lenders = {kind: {project for _, _, project, _ in asked} for kind, asked in self._asked.items()}

    def room_of_stopping(self, job: QueuedJob, node: NodeCapacity) -> Room | None:
        """The room on the node, if the jobs that are already stopping there free enough."""
        return least_room(job, node, [each for each in self._on.get(node.name, ()) if each.is_stopping])

    def stopping(self, project: str, kind: str) -> float:
        """Number of devices that stopping jobs of the project will release."""
        return self._stopping.get((project, kind), 0)

    def room_by_preemption(self, job: QueuedJob, given: CandidateNodes, ledger: PassAccounts) -> Room | None:
        """The room with the least lost work, of the nodes examined."""
        preemptor = self._preemptor(job, ledger)
        best: tuple[tuple[float, int, str], Room] | None = None
        after, left_for_others = 0, self._budget // 2
        for least, name in self._by_least_loss(preemptor, given.few):
            if self._budget <= left_for_others or (
                best is not None and (least > best[0][0] or after >= _EXAMINED_AFTER_FIRST)
            ):
                break
            node = given(name) if name not in job.no_room_on else None
            if node is None:
                continue
            self._budget -= 1
            after += best is not None
            room = preemptor.room_on(node, self._on[name])
            if room is not None:
                rank = sum(victim.loss for victim in room.victims), len(room.victims), name
                if best is None or rank < best[0]:
                    best = rank, room
        return best[1] if best is not None else None

    def rooms_by_preemption(
        self, job: QueuedJob, given: Mapping[str, NodeCapacity], free: Sequence[str], ledger: PassAccounts
    ) -> tuple[Room, ...]:
        """The same for a gang; ``given`` are its eligible nodes, and on those of ``free`` a part could start now."""
        preemptor = self._preemptor(job, ledger)
        preemption = GangPreemption(preemptor, self._on)
        for name in free:
            preemption.offer(given[name])
        after, left_for_others = 0, self._budget // 2
        for _, name in self._by_least_loss(preemptor, None):
            if self._budget <= left_for_others or after >= _EXAMINED_AFTER_FIRST:
                break
            if name in given:
                self._budget -= 1
                after += preemption.is_enough
                preemption.offer(given[name])
        return preemption.rooms()

    def rooms_for_roles(self, job: QueuedJob, nodes: Sequence[NodeCapacity], ledger: PassAccounts) -> tuple[Room, ...]:
        """The same for a job with roles, on some of these nodes."""
        if self._budget <= 0:
            return ()
        self._budget -= len(nodes)
        return rooms.by_preemption(self._preemptor(job, ledger), nodes, self._on)

    def rooms_in_time(self, job: QueuedJob, nodes: Sequence[NodeCapacity]) -> tuple[Room, ...]:
        """For a job with roles: the rooms that are free soonest without preemption."""
        return rooms.in_time(job.request, nodes, self._on)

    def rooms_of_stopping(self, job: QueuedJob, nodes: Sequence[NodeCapacity]) -> tuple[Room, ...]:
        """For a job with roles: the rooms on these nodes, if the jobs that are already stopping there free enough."""
        return rooms.of_stopping(job.request, nodes, self._on)

    def room_in_time(self, job: QueuedJob, given: CandidateNodes) -> Room | None:
        """The room that is free soonest without preemption; where no end is known, with the fewest jobs to end."""
        best: tuple[tuple[float, int, str], Room] | None = None
        for soonest in self.soonest(job.request.device_count, given.few):
            if best is not None and best[0] < soonest:
                break
            name = soonest[2]
            node = given(name) if name not in job.no_room_on else None
            found = self._ends_on(name).room(job, node) if node is not None else None
            if found is not None and (best is None or found[0] < best[0]):
                best = found
        return best[1] if best is not None else None

    def room_on(self, job: QueuedJob, node: NodeCapacity) -> Room | None:
        """The same for this node."""
        found = self._ends_on(node.name).room(job, node) if node.name in self._on else None
        return found[1] if found is not None else None

    def soonest(self, devices: int, few: frozenset[str] | None = None) -> list[_Soonest]:
        """Lower bounds (seconds, jobs, node) for when so many devices are free; restricted to ``few`` if given.

        Computed once: within a pass nodes only become fuller, except those where jobs are preempted.
        """
        if devices not in self._soonest_of:
            found = self._soonest_of[devices] = sorted(self._soonest_on(self._nodes, devices))
            self._soonest_at[devices] = {each[2]: each for each in found}
        known = self._soonest_of[devices]
        return known if few is None else [each for each in known if each[2] in few]

    def _soonest_on(self, names: Iterable[str], devices: int) -> Iterator[_Soonest]:
        for name in names:
            node = self._nodes.get(name)  # None: the job runs on a node that accepts no new jobs now
            if node is not None and name in self._on:
                soonest = self._ends_on(name).soonest(devices - len(node.free) - len(node.parts))
                if soonest is not None:
                    yield (*soonest, name)

    def take(self, room: Room) -> None:
        """Mark the devices of the room as taken, and its victims as stopping."""
        taken = {device.index for device in room.devices}
        victims, ended = ({each.job_id for each in group} for group in (room.victims, room.ended))
        left = []
        for each in self._on.get(room.node, ()):
            now = each if each.job_id not in ended else replace(each, quantities=NOTHING)
            if each.job_id in victims:
                now = replace(now, is_stopping=True)
                self._count_stopping(each)
            left.append(replace(now, devices=each.devices - taken))
        self._on[room.node] = left
        self._ends.pop(room.node, None)
        if victims:
            self._end_elsewhere(victims, room.node)

    def _end_elsewhere(self, victims: set[str], node: str) -> None:
        """Mark victims as stopping on their other nodes, too."""
        left = {name for victim in victims for name in self._nodes_of[victim]}
        for name in left - {node}:
            running = self._on[name]
            for place, each in enumerate(running):
                if each.job_id in victims and not each.is_stopping:
                    running[place] = replace(each, is_stopping=True)
                    self._count_stopping(each)
                    self._ends.pop(name, None)
        for devices, known in self._soonest_of.items():
            at = self._soonest_at[devices]
            for before in [at.pop(name) for name in left if name in at]:
                del known[bisect_left(known, before)]
            for now in self._soonest_on(left, devices):
                at[now[2]] = now
                insort(known, now)

    def _preemptor(self, job: QueuedJob, ledger: PassAccounts) -> Preemptor:
        kind, excess = job.request.device_kind, ledger.excess(job)
        owed_quota = round(max(0.0, excess - self.stopping(job.project, kind)), 6)
        lent: dict[str, float] = {}
        if excess == 0 and ledger.is_deserved(job):
            others = self._lenders.get(kind, set()) - {job.project}
            lent = {each: ledger.borrowed(each, kind) - self.stopping(each, kind) for each in others}
        return Preemptor(job, owed_quota, {project: left for project, left in lent.items() if round(left, 6) > 0})

    def _by_least_loss(self, preemptor: Preemptor, few: frozenset[str] | None) -> Iterator[tuple[float, str]]:
        """(lower bound of the loss, node), the least first: nodes with stopping jobs or possible victims."""
        own, below, lent = preemptor.job.project, preemptor.job.priority, preemptor.lent
        kind = preemptor.job.request.device_kind
        seen = set(self._stopping_on if few is None else self._stopping_on & few)
        yield from ((0.0, name) for name in sorted(seen))
        for loss, name, project, priority in self._asked.get(kind, ()) if few is None else self._asked_on(few, kind):
            if name not in seen and (priority < below if project == own else project in lent):
                seen.add(name)
                yield loss, name

    def _asked_on(self, names: Iterable[str], kind: str) -> list[tuple[float, str, str, int]]:
        return sorted(
            (each.loss, name, each.project, each.priority)
            for name in names
            for each in self._on.get(name, ())
            if each.may_be_preempted and not each.is_stopping and each.kind == kind
        )

    def _ends_on(self, name: str) -> "_Ends":
        if name not in self._ends:
            self._ends[name] = _Ends(self._on[name])
        return self._ends[name]

    def _count_stopping(self, each: Running) -> None:
        self._stopping_on.add(each.node)
        key = each.project, each.kind
        self._stopping[key] = self._stopping.get(key, 0) + each.amount


class _Ends:
    """Expected ends of the jobs on a node."""

    def __init__(self, running: Iterable[Running]) -> None:
        self._in_order = sorted(running, key=_ends_in)  # stable: ties stay in the order of job ids
        self._devices = list(accumulate(len(each.devices) for each in self._in_order))

    def soonest(self, devices: int) -> tuple[float, int] | None:
        """Lower bound (seconds, jobs) for when so many devices are released; None: never."""
        count = max(1, bisect_left(self._devices, devices) + 1)
        return (_ends_in(self._in_order[count - 1]), count) if count <= len(self._in_order) else None

    def room(self, job: QueuedJob, node: NodeCapacity) -> tuple[tuple[float, int, str], Room] | None:
        """((seconds, number of jobs, node), room) once enough of the first jobs have ended; None if never."""
        for count, each in enumerate(self._in_order, start=1):
            room = room_after(job, node, self._in_order[:count])
            if room is not None:
                seconds = _ends_in(each)
                return (seconds, count, node.name), replace(room, seconds=None if seconds == inf else seconds)
        return None


def _ends_in(each: Running) -> float:
    if each.is_stopping:
        return 0.0
    return inf if each.ends_in is None else each.ends_in
