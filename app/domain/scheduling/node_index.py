"""Index of candidate nodes during a pass: finds the best node where a request can start now. Pure.

Nodes of a kind have the same devices and the same free devices: fit and device score are computed once per kind. Within
a kind, nodes are ordered by the part of the score that depends on the node alone.
"""

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from itertools import chain, islice

from app.domain.scheduling.data_locality import NOT_CACHED, Cached
from app.domain.scheduling.filters import NAMED, choose_devices, excluded, open_devices, pending_reason_for
from app.domain.scheduling.node_classes import CandidateNodes, NodeClasses, amount_free
from app.domain.scheduling.node_kinds import FittingKinds, NodeKind, RankedNodes, RequestResult
from app.domain.scheduling.placement import Placement, PlacementOption
from app.domain.scheduling.preemption import Room
from app.domain.scheduling.queue_order import QueuedJob, request_key
from app.domain.scheduling.reservations import Reservations
from app.domain.scheduling.resources import NOTHING, UNKNOWN, NodeCapacity, Quantities, Request
from app.domain.scheduling.scoring import AFFINITY, CACHED, Weights, score_alone, score_devices

_Rank = tuple[float, str]  # of a node: (minus its score, name)
_RequestKey = tuple[Request, Cached]  # restricted to the nodes that have ``Cached`` sources, if there are any


class NodeIndex:
    """Results are cached; only changed nodes are evaluated again."""

    def __init__(self, nodes: Iterable[NodeCapacity], weights: Weights) -> None:
        self.nodes = {node.name: node for node in sorted(nodes, key=lambda n: n.name)}
        self._weights = weights
        self._score_alone = score_alone(weights)
        self._classes = NodeClasses(self.nodes)
        self._kinds: dict[object, NodeKind] = {}
        self._in_order: list[NodeKind] = []
        self._kind_of: dict[str, NodeKind] = {}
        self._changes = dict.fromkeys(self.nodes, 0)
        self._alone: dict[str, float] = {}
        self._fitting: dict[Request, FittingKinds] = {}
        self._constraints: dict[object, int] = {}
        self._frequent: dict[object, Cached] = {}  # by the sources that many nodes have
        self._constraint_of: dict[object, int] = {}
        self._answers: dict[object, RequestResult] = {}
        self._asked_alike: dict[Request, list[object]] = {}  # keys of ``_answers`` by requested devices
        self._avoided: dict[tuple[Request, frozenset[str]], frozenset[str]] = {}
        self._left_of: dict[frozenset[str], Collection[str]] = {}
        self._reserved = Reservations(self.nodes, self._classes)
        for node in self.nodes.values():
            self._classify(node)

    @property
    def is_full(self) -> bool:
        """Whether no free device is left."""
        return not self._kind_of

    def change(self, node: NodeCapacity) -> None:
        """Replace the node's state; it may only have become fuller."""
        self.nodes[node.name] = node
        self._changes[node.name] += 1
        if (kind := self._kind_of.pop(node.name, None)) is not None:
            kind.names.discard(node.name)
        self._reserved.refresh(node.name)
        self._classify(node)

    def refresh(self, node: NodeCapacity) -> dict[object, Request]:
        """Replace the node's state, which may also have become freer; hardware and labels are unchanged.

        Returns the requests that fitted nowhere and fit there now, by ``request_key``.
        """
        self.change(node)
        self._left_of.clear()
        reopened = {}
        for asked in self._asked_alike.values():
            if not self._has_devices(self._answers[asked[0]].request, node.name):
                continue
            for key in asked:
                answer = self._answers[key]
                if answer.is_unplaceable and self._starts_on(answer.request, node.name):
                    answer.is_unplaceable, answer.reason = False, ""
                    reopened[key] = answer.request
        return reopened

    def close(self, asked: object) -> None:
        """Mark a reopened request as unplaceable again: the node that reopened it has too little left."""
        self._answers[asked].is_unplaceable = True

    def starts_on(self, request: Request, name: str) -> bool:
        """Whether the request could start on this node now."""
        return self._has_devices(request, name) and self._starts_on(request, name)

    def _has_devices(self, request: Request, name: str) -> bool:
        kind = self._kind_of.get(name)
        return kind is not None and kind.number in self._kinds_for(request).scores

    def _starts_on(self, request: Request, name: str) -> bool:
        return self._has_amounts(name, request.quantities) and self._classes.matches_labels(request)(name)

    def is_unplaceable(self, job: QueuedJob) -> bool:
        """Whether the job is already known to fit on no node."""
        return self._answer(job).is_unplaceable

    def reserve(self, room: Room) -> None:
        """Reserve the free devices of the room: only jobs that end in time may still use them."""
        self.change(self._reserved.reserve(room))

    def candidates(self, job: QueuedJob) -> CandidateNodes:
        """Lookup by name: eligible nodes that could hold the job if they were empty."""
        return self._classes.candidates(job.request, self._excluded(job))

    def could_hold(self, job: QueuedJob) -> bool:
        """Whether any eligible node could hold the job if it were empty."""
        return next(self._classes.feasible(job.request, self._excluded(job)), None) is not None

    def place(self, job: QueuedJob) -> Placement | str:
        """Return where the job can start now, else a reserved gap that it leaves before the owner can start (backfill).

        When it fits nowhere, return the reason, which is the same for equal requests.
        """
        answer = self._answer(job)
        if (found := self._free(job, answer)) is not None:
            return found
        if job.max_seconds is not None and (gap := self._reserved.take(job, self._excluded(job))) is not None:
            return PlacementOption(*gap).given_to(job)
        return answer.reason or self._explained(job, answer)

    def best_free(self, job: QueuedJob) -> Placement | None:
        """Where the job can start now on unreserved devices."""
        return self._free(job, self._answer(job))

    def best_on(self, name: str, job: QueuedJob) -> Placement | None:
        """A placement on this node, if the job can start there now."""
        option = self._option(job.request, self.nodes[name])
        return None if option is None else option.given_to(job)

    def why_none(self, job: QueuedJob) -> str:
        """The reason that ``place`` returns when the job fits nowhere."""
        answer = self._answer(job)
        return answer.reason or self._explained(job, answer)

    def _answer(self, job: QueuedJob) -> "RequestResult":
        key = request_key(job)
        answer = self._answers.get(key)
        if answer is None:
            answer = self._answers[key] = RequestResult(job.request)
            self._asked_alike.setdefault(job.request.for_devices, []).append(key)
        return answer

    def _free(self, job: QueuedJob, answer: "RequestResult") -> Placement | None:
        if answer.is_unplaceable:
            return None
        found = self._best(job)
        answer.is_unplaceable = found is None  # until a node is refreshed: otherwise they only become fuller
        return None if found is None else found.given_to(job)

    def _explained(self, job: QueuedJob, answer: "RequestResult") -> str:
        avoided = self._excluded(job)
        emptiest = [self.nodes[name] for name in self._emptiest(job.request, avoided)]
        others = (node for name, node in self.nodes.items() if name not in avoided)
        answer.reason = pending_reason_for(job.request, emptiest, list(islice(others, NAMED))) + excluded(avoided)
        return answer.reason

    def _classify(self, node: NodeCapacity) -> None:
        """File the node under its current kind."""
        if not node.has_room:
            return
        hardware = self._classes.hardware(node.name)
        is_full = node.max_jobs is not None and node.active_jobs >= node.max_jobs
        is_counted = not node.parts and self._classes.is_uniform(hardware)
        key = hardware, is_full, len(node.free) if is_counted else amount_free(node)
        if (kind := self._kinds.get(key)) is None:
            sample = replace(
                node, labels=frozenset(), held=NOTHING, active_jobs=0, max_jobs=None, reputation=UNKNOWN
            )  # only what device scores may depend on
            kind = self._kinds[key] = NodeKind(len(self._in_order), sample, hardware, is_full)
            self._in_order.append(kind)
        self._kind_of[node.name] = kind
        kind.names.add(node.name)
        kind.arrivals.append((node.name, self._changes[node.name]))
        self._alone[node.name] = self._score_alone(node)

    def _best(self, job: QueuedJob) -> PlacementOption | None:
        """Nodes whose disk was full for the job come last: there may be space again, and no device elsewhere."""
        avoided = self._excluded(job)
        found = self._best_of_all(job.request, avoided.union(job.no_room_on), job.cached)
        if found is not None or not job.no_room_on:
            return found
        again = (name for name in job.no_room_on if name in self.nodes and name not in avoided)
        options = (self._option(job.request, self.nodes[name]) for name in again)
        return next((option for option in options if option is not None), None)

    def _best_of_all(self, request: Request, but: Collection[str], cached: Cached) -> PlacementOption | None:
        """Ties are broken by name: the same input gives the same plan."""
        few = self._classes.few(request)
        if few is not None:
            best = self._best_of(request, self._with_room(few), but, cached)
        elif request.has_preferences:
            best = self._best_preferred(request, but, cached)
        else:
            best = self._best_of_many(request, but, cached)
        return None if best is None else self._chosen(request, best[1])

    def _best_preferred(self, request: Request, but: Collection[str], cached: Cached) -> _Rank | None:
        """With few preferred nodes: the best of these or of all without preferences; no other can score higher."""
        few = self._classes.few_preferred(request)
        if few is None:
            return self._best_of_many(request, but, cached)
        preferred = self._best_of(request, self._with_room(few), but, cached)
        of_all = self._best_of_many(request.without_preferences, but, cached)
        return min((rank for rank in (preferred, of_all) if rank is not None), default=None)

    def _best_of_many(self, request: Request, but: Collection[str], cached: Cached) -> _Rank | None:
        if not cached.sources or not self._weights[CACHED]:
            return self._best_of_kinds(request, but)
        return self._best_of_holders(request, but, cached)

    def _best_of_holders(self, request: Request, but: Collection[str], cached: Cached) -> _Rank | None:
        """The best without data locality, the best holder of a rare source, and the best holder of a frequent one."""
        best = self._best_of_kinds(request, but)
        if best is None or cached.on(best[1]) == 1.0:
            return best  # no other can score higher
        holders = filter(self._classes.matches_labels(request), self._with_room(cached.rare))
        found = [best, self._best_of(request, holders, but, cached)]
        if cached.frequent:
            frequent = self._frequent.setdefault(cached.frequent, Cached(cached.frequent))
            found.append(self._best_of_kinds(request, but, frequent))
        return min(rank for rank in found if rank is not None)

    def _best_of_kinds(self, request: Request, but: Collection[str], cached: Cached = NOT_CACHED) -> _Rank | None:
        """Restricted to nodes with ``cached`` sources, if there are any."""
        constraint = self._constraint(request, cached)
        best: _Rank | None = None
        for score, kind in self._kinds_for(request).kinds:
            entry = self._first(kind, constraint, (request, cached), but) if kind.names else None
            if entry is not None and (best is None or (entry[0] - score, entry[1]) < best):
                best = entry[0] - score, entry[1]
        return best

    def _best_of(self, request: Request, names: Iterable[str], but: Collection[str], cached: Cached) -> _Rank | None:
        """The best of ``names``, all of which have room."""
        scores, weight, best = self._kinds_for(request).scores, self._weights[CACHED], None
        preferred = self._preferred(request)
        for name in names:
            score = scores.get(self._kind_of[name].number)
            if score is None or name in but:
                continue
            worth = -self._alone[name] - weight * cached.on(name) - score
            rank = (worth if preferred is None else worth - preferred(name)), name
            if (best is None or rank < best) and self._has_amounts(name, request.quantities):
                best = rank
        return best

    def _with_room(self, few: frozenset[str]) -> Collection[str]:
        """Those that are not full; the result is reused, since no node gets room again within a pass."""
        left = self._left_of[few] = self._kind_of.keys() & self._left_of.get(few, few)
        return left

    def _option(self, request: Request, node: NodeCapacity) -> PlacementOption | None:
        if len(node.free) + len(node.parts) < request.device_count or not self._classes.could_hold(request)(node.name):
            return None
        return self._chosen(request, node.name)

    def _chosen(self, request: Request, name: str) -> PlacementOption | None:
        devices = choose_devices(request, self.nodes[name])
        return None if devices is None else PlacementOption(name, devices)

    def _kinds_for(self, request: Request) -> FittingKinds:
        devices = request.for_devices
        fitting = self._fitting.get(devices)
        if fitting is None:
            fitting = self._fitting[devices] = FittingKinds()
        for kind in self._in_order[fitting.seen :]:
            if not self._classes.fits_hardware(devices, kind.hardware):
                continue
            fitting.open[kind.number] = len(open_devices(devices, kind.sample))
            if not kind.is_full and choose_devices(devices, kind.sample) is not None:
                score = score_devices(devices, kind.sample, self._weights)
                fitting.kinds.append((score, kind))
                fitting.scores[kind.number] = score
        fitting.seen = len(self._in_order)
        return fitting

    def _constraint(self, request: Request, cached: Cached) -> int:
        """A number that identifies the request apart from its devices."""
        constraint = self._constraint_of.get((request, cached))
        if constraint is None:
            named = request.required_labels, request.forbidden_labels, request.preferred_labels, request.avoided_labels
            key = request.quantities, named, cached
            constraint = self._constraint_of[request, cached] = self._constraints.setdefault(
                key, len(self._constraints)
            )
        return constraint

    def _first(
        self, kind: NodeKind, constraint: int, asked: _RequestKey, but: Collection[str]
    ) -> tuple[float, str, int] | None:
        """The best node of the kind for the request, as (minus its own score, name, change)."""
        best = kind.best.get(constraint)
        if best is None:
            best = kind.best[constraint] = RankedNodes()
        if best.seen < len(kind.arrivals):
            self._add_arrivals(best, kind, *asked)
        entries = best.entries
        if entries and self._changes[entries[0][1]] == entries[0][2] and entries[0][1] not in but:
            return entries[0]  # the common case
        put_back = []
        while entries and (self._changes[entries[0][1]] != entries[0][2] or entries[0][1] in but):
            entry = heapq.heappop(entries)
            if self._changes[entry[1]] == entry[2]:
                put_back.append(entry)
        first = entries[0] if entries else None
        for entry in put_back:
            heapq.heappush(entries, entry)
        return first

    def _add_arrivals(self, best: RankedNodes, kind: NodeKind, request: Request, cached: Cached) -> None:
        wanted, matches_labels = request.quantities, self._classes.matches_labels(request)
        weight, holders, preferred = self._weights[CACHED], cached.by_node, self._preferred(request)
        arrived: Iterable[tuple[str, int]] = kind.arrivals[best.seen :]
        if not best.seen:  # start from the current nodes: fewer than all arrivals
            now = kind.names if cached is NOT_CACHED else kind.names & holders.keys()
            arrived = [(name, self._changes[name]) for name in now]
        for name, change in arrived:
            if self._changes[name] != change or (cached is not NOT_CACHED and name not in holders):
                continue
            if self._has_amounts(name, wanted) and matches_labels(name):
                worth = -self._alone[name] - weight * holders.get(name, 0.0)
                worth = worth if preferred is None else worth - preferred(name)
                heapq.heappush(best.entries, (worth, name, change))
        best.seen = len(kind.arrivals)

    def _preferred(self, request: Request) -> Callable[[str], float] | None:
        """Name → weighted affinity score; None for a request without preferences."""
        if not request.has_preferences:
            return None
        weight, preference = self._weights[AFFINITY], self._classes.preference(request)
        return lambda name: weight * preference(name)

    def _has_amounts(self, name: str, wanted: Quantities) -> bool:
        node = self.nodes[name]
        held = node.held
        return (
            node.cpu_cores - held.cpu_cores >= wanted.cpu_cores
            and node.ram_mb - held.ram_mb >= wanted.ram_mb
            and node.storage_mb - held.storage_mb >= wanted.storage_mb
        )

    def _emptiest(self, request: Request, avoided: Collection[str]) -> list[str]:
        """The first ``NAMED`` feasible nodes: those with most matching devices free, then by name."""
        could = self._classes.could_hold(request)
        able = (name for name in self._by_room(request) if name not in avoided and could(name))
        found = list(islice(able, NAMED))
        rest = self._classes.feasible(request, {*avoided, *found})
        return found + list(islice(rest, NAMED - len(found)))

    def _by_room(self, request: Request) -> Iterator[str]:
        """The nodes with matching free devices, those with most of them first, then by name."""
        open_of, few = self._kinds_for(request).open, self._classes.few(request)
        names_of: dict[int, list[Collection[str]]] = {}
        if few is None:
            for number, count in open_of.items():
                names_of.setdefault(count, []).append(self._in_order[number].names)
        else:
            for name in self._with_room(few):
                names_of.setdefault(open_of.get(self._kind_of[name].number, 0), []).append((name,))
        for count in sorted(filter(None, names_of), reverse=True):
            yield from sorted(chain.from_iterable(names_of[count]))

    def _excluded(self, job: QueuedJob) -> frozenset[str]:
        """The nodes to exclude for the job, as ``filters.avoided`` computes it."""
        if not job.avoids:
            return job.avoids
        key = job.request, job.avoids
        if key not in self._avoided:
            could_hold = self._classes.could_hold(job.request)
            could = frozenset(name for name in job.avoids if name in self.nodes and could_hold(name))
            others = self._classes.feasible(job.request, job.avoids)
            self._avoided[key] = could if could and next(others, None) is not None else frozenset()
        return self._avoided[key]
