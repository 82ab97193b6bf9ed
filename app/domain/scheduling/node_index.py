"""The nodes while a plan is made, and to each request the best of those where it can start now. Pure.

Nodes of a kind have the same devices and as much of them free: whether a request fits is asked, and what that is worth
is scored, once for each kind. Among the nodes of a kind the one comes first that scores highest by itself.
"""

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from itertools import chain, islice

from app.domain.scheduling.data_locality import NOWHERE, Cached
from app.domain.scheduling.filters import NAMED, choose_devices, not_given, open_devices, why_waiting
from app.domain.scheduling.node_classes import Given, NodeClasses, amount_free
from app.domain.scheduling.node_kinds import Answer, Best, Fitting, Kind
from app.domain.scheduling.placement import Option, Placement
from app.domain.scheduling.preemption import Room
from app.domain.scheduling.queue_order import QueuedJob, asked_by
from app.domain.scheduling.reservations import KeptDevices
from app.domain.scheduling.resources import NOTHING, UNKNOWN, NodeCapacity, Quantities, Request
from app.domain.scheduling.scoring import AFFINITY, CACHED, Weights, score_alone, score_devices

_Rank = tuple[float, str]  # of a node: minus its score, and its name
_Asked = tuple[Request, Cached]  # only the holders of what is cached are meant, if anything is


class Choices:
    """What has changed is found anew, all the rest remembered."""

    def __init__(self, nodes: Iterable[NodeCapacity], weights: Weights) -> None:
        self.nodes = {node.name: node for node in sorted(nodes, key=lambda n: n.name)}
        self._weights = weights
        self._score_alone = score_alone(weights)
        self._classes = NodeClasses(self.nodes)
        self._kinds: dict[object, Kind] = {}
        self._in_order: list[Kind] = []
        self._kind_of: dict[str, Kind] = {}
        self._changes = dict.fromkeys(self.nodes, 0)
        self._alone: dict[str, float] = {}
        self._fitting: dict[Request, Fitting] = {}
        self._wishes: dict[object, int] = {}
        self._frequent: dict[object, Cached] = {}  # by what many nodes hold
        self._wish_of: dict[object, int] = {}
        self._answers: dict[object, Answer] = {}
        self._asked_alike: dict[Request, list[object]] = {}  # their keys, by the devices that are asked for
        self._avoided: dict[tuple[Request, frozenset[str]], frozenset[str]] = {}
        self._left_of: dict[frozenset[str], Collection[str]] = {}
        self._kept = KeptDevices(self.nodes, self._classes)
        for node in self.nodes.values():
            self._settle(node)

    @property
    def is_full(self) -> bool:
        """No device is left to be given away."""
        return not self._kind_of

    def change(self, node: NodeCapacity) -> None:
        """The node is like this from now on; it may only have become fuller."""
        self.nodes[node.name] = node
        self._changes[node.name] += 1
        if (kind := self._kind_of.pop(node.name, None)) is not None:
            kind.names.discard(node.name)
        self._kept.look_again_at(node.name)
        self._settle(node)

    def look_again_at(self, node: NodeCapacity) -> dict[object, Request]:
        """The node is like this from now on, however much of it is free, with the hardware and labels that it had.

        Returns what is asked for, and was found nowhere, that fits there (``asked_by``).
        """
        self.change(node)
        self._left_of.clear()
        reopened = {}
        for asked in self._asked_alike.values():
            if not self._has_devices(self._answers[asked[0]].request, node.name):
                continue
            for key in asked:
                answer = self._answers[key]
                if answer.is_nowhere and self._starts_on(answer.request, node.name):
                    answer.is_nowhere, answer.reason = False, ""
                    reopened[key] = answer.request
        return reopened

    def close(self, asked: object) -> None:
        """What was reopened by a node that has too little left for it is nowhere again."""
        self._answers[asked].is_nowhere = True

    def starts_on(self, request: Request, name: str) -> bool:
        """Whether it could start on this node now."""
        return self._has_devices(request, name) and self._starts_on(request, name)

    def _has_devices(self, request: Request, name: str) -> bool:
        kind = self._kind_of.get(name)
        return kind is not None and kind.number in self._kinds_for(request).scores

    def _starts_on(self, request: Request, name: str) -> bool:
        return self._has_amounts(name, request.quantities) and self._classes.is_called_for(request)(name)

    def is_nowhere(self, job: QueuedJob) -> bool:
        """Whether it is known that no node has room for it."""
        return self._answer(job).is_nowhere

    def keep(self, room: Room) -> None:
        """Give what is free of these devices to nobody who does not give it back in time."""
        self.change(self._kept.keep(room))

    def holding(self, job: QueuedJob) -> Given:
        """Name → the node, when the job may be given it and it could hold the job, were it empty."""
        return self._classes.given(job.request, self._not_given(job))

    def could_hold(self, job: QueuedJob) -> bool:
        """Whether any node that it may be given could hold it, if it were empty."""
        return next(self._classes.holding(job.request, self._not_given(job)), None) is not None

    def place(self, job: QueuedJob) -> Placement | str:
        """Where the job can start now, or else on what is kept for others and it gives back before they can use it.

        When nowhere, why: in the same words to all that ask for the same.
        """
        answer = self._answer(job)
        if (found := self._free(job, answer)) is not None:
            return found
        if job.at_most_seconds is not None and (gap := self._kept.take(job, self._not_given(job))) is not None:
            return Option(*gap).given_to(job)
        return answer.reason or self._explained(job, answer)

    def best_free(self, job: QueuedJob) -> Placement | None:
        """Where it can start now on what is kept for nobody."""
        return self._free(job, self._answer(job))

    def best_on(self, name: str, job: QueuedJob) -> Placement | None:
        """On this node, if it can start there now."""
        option = self._option(job.request, self.nodes[name])
        return None if option is None else option.given_to(job)

    def why_none(self, job: QueuedJob) -> str:
        """What ``place`` says to those that start nowhere."""
        answer = self._answer(job)
        return answer.reason or self._explained(job, answer)

    def _answer(self, job: QueuedJob) -> "Answer":
        key = asked_by(job)
        answer = self._answers.get(key)
        if answer is None:
            answer = self._answers[key] = Answer(job.request)
            self._asked_alike.setdefault(job.request.for_devices, []).append(key)
        return answer

    def _free(self, job: QueuedJob, answer: "Answer") -> Placement | None:
        if answer.is_nowhere:
            return None
        found = self._best(job)
        answer.is_nowhere = found is None  # for good: nodes only become fuller here
        return None if found is None else found.given_to(job)

    def _explained(self, job: QueuedJob, answer: "Answer") -> str:
        avoided = self._not_given(job)
        emptiest = [self.nodes[name] for name in self._emptiest(job.request, avoided)]
        others = (node for name, node in self.nodes.items() if name not in avoided)
        answer.reason = why_waiting(job.request, emptiest, list(islice(others, NAMED))) + not_given(avoided)
        return answer.reason

    def _settle(self, node: NodeCapacity) -> None:
        """Have the node found among those that it is like now."""
        if not node.has_room:
            return
        hardware = self._classes.hardware(node.name)
        is_full = node.max_jobs is not None and node.active_jobs >= node.max_jobs
        is_counted = not node.parts and self._classes.is_uniform(hardware)
        key = hardware, is_full, len(node.free) if is_counted else amount_free(node)
        if (kind := self._kinds.get(key)) is None:
            sample = replace(
                node, labels=frozenset(), held=NOTHING, active_jobs=0, max_jobs=None, reputation=UNKNOWN
            )  # as scores of the devices may know it
            kind = self._kinds[key] = Kind(len(self._in_order), sample, hardware, is_full)
            self._in_order.append(kind)
        self._kind_of[node.name] = kind
        kind.names.add(node.name)
        kind.arrivals.append((node.name, self._changes[node.name]))
        self._alone[node.name] = self._score_alone(node)

    def _best(self, job: QueuedJob) -> Option | None:
        """Nodes that had no room for it come last. Not never: there may be room again, and elsewhere no device."""
        avoided = self._not_given(job)
        found = self._best_of_all(job.request, avoided.union(job.no_room_on), job.cached)
        if found is not None or not job.no_room_on:
            return found
        again = (name for name in job.no_room_on if name in self.nodes and name not in avoided)
        options = (self._option(job.request, self.nodes[name]) for name in again)
        return next((option for option in options if option is not None), None)

    def _best_of_all(self, request: Request, but: Collection[str], cached: Cached) -> Option | None:
        """Of equal ones the first by name: the same input gives the same plan."""
        few = self._classes.few(request)
        if few is not None:
            best = self._best_of(request, self._with_room(few), but, cached)
        elif request.has_preferences:
            best = self._best_preferred(request, but, cached)
        else:
            best = self._best_of_many(request, but, cached)
        return None if best is None else self._chosen(request, best[1])

    def _best_preferred(self, request: Request, but: Collection[str], cached: Cached) -> _Rank | None:
        """Where few nodes are preferred the best of these, or of all as if none was: no other can score higher."""
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
        """The best of all as if nothing was cached, and those of the holders of what many hold, and of the rest."""
        best = self._best_of_kinds(request, but)
        if best is None or cached.on(best[1]) == 1.0:
            return best  # no other can score higher
        holders = filter(self._classes.is_called_for(request), self._with_room(cached.rare))
        found = [best, self._best_of(request, holders, but, cached)]
        if cached.frequent:
            frequent = self._frequent.setdefault(cached.frequent, Cached(cached.frequent))
            found.append(self._best_of_kinds(request, but, frequent))
        return min(rank for rank in found if rank is not None)

    def _best_of_kinds(self, request: Request, but: Collection[str], cached: Cached = NOWHERE) -> _Rank | None:
        """Only of its holders where anything is ``cached``."""
        wish = self._wish(request, cached)
        best: _Rank | None = None
        for score, kind in self._kinds_for(request).kinds:
            entry = self._first(kind, wish, (request, cached), but) if kind.names else None
            if entry is not None and (best is None or (entry[0] - score, entry[1]) < best):
                best = entry[0] - score, entry[1]
        return best

    def _best_of(self, request: Request, names: Iterable[str], but: Collection[str], cached: Cached) -> _Rank | None:
        """Of these, which have room."""
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
        """Those of them that are not full; of those that were when it was last asked, for none gets room again."""
        left = self._left_of[few] = self._kind_of.keys() & self._left_of.get(few, few)
        return left

    def _option(self, request: Request, node: NodeCapacity) -> Option | None:
        if len(node.free) + len(node.parts) < request.device_count or not self._classes.could_hold(request)(node.name):
            return None
        return self._chosen(request, node.name)

    def _chosen(self, request: Request, name: str) -> Option | None:
        devices = choose_devices(request, self.nodes[name])
        return None if devices is None else Option(name, devices)

    def _kinds_for(self, request: Request) -> Fitting:
        devices = request.for_devices
        fitting = self._fitting.get(devices)
        if fitting is None:
            fitting = self._fitting[devices] = Fitting()
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

    def _wish(self, request: Request, cached: Cached) -> int:
        """What it asks for beside devices, as a number."""
        wish = self._wish_of.get((request, cached))
        if wish is None:
            named = request.required_labels, request.forbidden_labels, request.preferred_labels, request.avoided_labels
            key = request.quantities, named, cached
            wish = self._wish_of[request, cached] = self._wishes.setdefault(key, len(self._wishes))
        return wish

    def _first(self, kind: Kind, wish: int, asked: _Asked, but: Collection[str]) -> tuple[float, str, int] | None:
        """The best node of the kind for the request, with minus its own score."""
        best = kind.best.get(wish)
        if best is None:
            best = kind.best[wish] = Best()
        if best.seen < len(kind.arrivals):
            self._take_in(best, kind, *asked)
        entries = best.entries
        if entries and self._changes[entries[0][1]] == entries[0][2] and entries[0][1] not in but:
            return entries[0]  # as it most often is
        put_back = []
        while entries and (self._changes[entries[0][1]] != entries[0][2] or entries[0][1] in but):
            entry = heapq.heappop(entries)
            if self._changes[entry[1]] == entry[2]:
                put_back.append(entry)
        first = entries[0] if entries else None
        for entry in put_back:
            heapq.heappush(entries, entry)
        return first

    def _take_in(self, best: Best, kind: Kind, request: Request, cached: Cached) -> None:
        wanted, is_called_for = request.quantities, self._classes.is_called_for(request)
        weight, holders, preferred = self._weights[CACHED], cached.by_node, self._preferred(request)
        arrived: Iterable[tuple[str, int]] = kind.arrivals[best.seen :]
        if not best.seen:  # those that are still there: of few holders they are found sooner than by all arrivals
            now = kind.names if cached is NOWHERE else kind.names & holders.keys()
            arrived = [(name, self._changes[name]) for name in now]
        for name, change in arrived:
            if self._changes[name] != change or (cached is not NOWHERE and name not in holders):
                continue
            if self._has_amounts(name, wanted) and is_called_for(name):
                worth = -self._alone[name] - weight * holders.get(name, 0.0)
                worth = worth if preferred is None else worth - preferred(name)
                heapq.heappush(best.entries, (worth, name, change))
        best.seen = len(kind.arrivals)

    def _preferred(self, request: Request) -> Callable[[str], float] | None:
        """Name → the points of the node for what the job prefers and avoids, if it does."""
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
        """The first of the nodes that could hold it: those with most of its devices free, then by name."""
        could = self._classes.could_hold(request)
        able = (name for name in self._by_room(request) if name not in avoided and could(name))
        found = list(islice(able, NAMED))
        rest = self._classes.holding(request, {*avoided, *found})
        return found + list(islice(rest, NAMED - len(found)))

    def _by_room(self, request: Request) -> Iterator[str]:
        """The nodes where any of its devices is free, those with most of them first, then by name."""
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

    def _not_given(self, job: QueuedJob) -> frozenset[str]:
        """As ``avoided`` says."""
        if not job.avoids:
            return job.avoids
        key = job.request, job.avoids
        if key not in self._avoided:
            could_hold = self._classes.could_hold(job.request)
            could = frozenset(name for name in job.avoids if name in self.nodes and could_hold(name))
            others = self._classes.holding(job.request, job.avoids)
            self._avoided[key] = could if could and next(others, None) is not None else frozenset()
        return self._avoided[key]
