"""Scoring: of the nodes that can hold a job, choose the one with the highest weighted sum of scores. Pure.

``device``, ``memory``, ``reputation`` and ``active_jobs`` with the default weights are ``score_node`` of CyxWiz's
central server: 100 + 50 + 30 × reputation - 10 × active jobs. To add a score, add a line to ``SCORES`` and a setting
of the same name for its weight.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from app.domain.scheduling.data_locality import NOT_CACHED, Cached
from app.domain.scheduling.filters import choose_devices, left_after, open_devices, satisfies, share_on, usable_devices
from app.domain.scheduling.resources import GpuType, NodeCapacity, Request
from app.domain.scheduling.topology import are_linked
from app.domain.units import WHOLE

AFFINITY = "affinity"
SAME_SWITCH = "same_switch"
CACHED = "cached"


@dataclass(frozen=True, kw_only=True)
class Score:
    """``of`` returns the unweighted value of a node for a request, usually between 0 and 1."""

    weight: float
    meaning: str
    of: Callable[[Request, NodeCapacity], float]
    of_node_alone: bool = False  # independent of the request; only then may it read more than the node's devices


@dataclass(frozen=True, kw_only=True)
class ScorePoints:
    """The contribution of one score to a node's total."""

    name: str
    meaning: str
    value: float
    weight: float

    @property
    def points(self) -> float:
        return self.value * self.weight


def _has_device(request: Request, node: NodeCapacity) -> float:
    return float(len(usable_devices(request, node)) >= request.device_count)


def _has_memory(request: Request, node: NodeCapacity) -> float:
    """Main memory for CPU jobs, memory of the free GPUs for GPU jobs."""
    if request.device_kind == "cpu":
        return float(node.ram_mb - node.held.ram_mb >= request.ram_min_mb)
    sizes = tuple(GpuType("", each.memory_mb) for each in request.gpu_types)
    of_any_type = replace(request, gpu_types=sizes)
    return float(len(open_devices(of_any_type, node)) >= request.device_count)


def _reputation(_: Request, node: NodeCapacity) -> float:
    return node.reputation


def _active_jobs(_: Request, node: NodeCapacity) -> float:
    return float(node.active_jobs)


def preference(request: Request, node: NodeCapacity) -> float:
    """Fraction of preferred labels that the node has, minus the fraction of avoided ones: -1 to 1."""
    if not request.has_preferences:
        return 0.0
    known_as, preferred, avoided = node.known_as, request.preferred_labels, request.avoided_labels
    has = sum(satisfies(known_as, term) for term in preferred) / len(preferred) if preferred else 0.0
    return has - (len(avoided & known_as) / len(avoided) if avoided else 0.0)


def _pack(request: Request, node: NodeCapacity) -> float:
    """How full the node would be with the job; 1 leaves no device free."""
    usable = usable_devices(request, node)
    if not usable:
        return 0.0
    taken = request.device_count * min(share_on(request, device) for device in usable)
    left = sum(node.left(device.index) for device in usable) - taken
    return 1.0 - max(0, left) / (WHOLE * len(usable))


def _shares(request: Request, node: NodeCapacity) -> float:
    """Above 0.5 when the job would get a device that is already shared, 0 when it would break a whole one."""
    chosen = choose_devices(request, node) if request.takes_part else None
    if chosen is None or chosen[0].index in node.free:
        return 0.0
    return 1.0 - left_after(request, node, chosen[0]) / (2 * WHOLE)


def _linked(request: Request, node: NodeCapacity) -> float:
    chosen = choose_devices(request, node) if request.device_count > 1 else None
    return float(chosen is not None and are_linked(chosen))


def _stands_alone(_: Request, __: NodeCapacity) -> float:
    """Always 0: topology is scored for a set of nodes by ``closeness``, not for a single one."""
    return 0.0


def _holds_nothing(_: Request, __: NodeCapacity) -> float:
    """Always 0: data locality is not part of the request; ``points_of`` and the planner add it."""
    return 0.0


def closeness(nodes: Sequence[NodeCapacity]) -> float:
    """Fraction of the nodes behind one switch, or half the fraction in one rack; 0 when no two share one."""
    return max(_shared(nodes, "switch="), _shared(nodes, "rack=") / 2)


def _shared(nodes: Sequence[NodeCapacity], prefix: str) -> float:
    counts = Counter(label for node in nodes for label in node.labels if label.startswith(prefix))
    most = max(counts.values(), default=0)
    return most / len(nodes) if most > 1 else 0.0


SCORES: Mapping[str, Score] = MappingProxyType(
    {
        "device": Score(weight=100.0, meaning="has the devices that the job asks for", of=_has_device),
        "memory": Score(weight=50.0, meaning="has enough free memory of the kind the job computes in", of=_has_memory),
        "reputation": Score(
            weight=30.0, meaning="how well attempts ended on the node, 0 to 1", of=_reputation, of_node_alone=True
        ),
        "active_jobs": Score(weight=-10.0, meaning="jobs that run on the node", of=_active_jobs, of_node_alone=True),
        "shares": Score(
            weight=500.0, meaning="a part of a device is taken of one that is shared already, 0 to 1", of=_shares
        ),
        "linked": Score(
            weight=100.0, meaning="would give a job of several devices such as NVLink connects", of=_linked
        ),
        AFFINITY: Score(
            weight=1000.0,
            meaning="the part of node_affinity that the node has, less the part of node_anti_affinity, -1 to 1",
            of=preference,
        ),
        SAME_SWITCH: Score(
            weight=200.0,
            meaning="the part of a job's several nodes that share a label switch=…, or half of it rack=…, 0 to 1",
            of=_stands_alone,
        ),
        CACHED: Score(
            weight=50.0,
            meaning="the part of the job's model and data that is in the node's cache, 0 to 1",
            of=_holds_nothing,
        ),
        "pack": Score(weight=0.0, meaning="how full the job would leave the node, 0 to 1", of=_pack),
    }
)
Weights = Mapping[str, float]
DEFAULT_WEIGHTS: Weights = MappingProxyType({name: score.weight for name, score in SCORES.items()})


def points_of(
    request: Request, node: NodeCapacity, weights: Weights = DEFAULT_WEIGHTS, cached: Cached = NOT_CACHED
) -> Sequence[ScorePoints]:
    """The contribution of every score, in the order of the table, including scores with weight 0."""
    values = {name: score.of(request, node) for name, score in SCORES.items()} | {CACHED: cached.on(node.name)}
    return [
        ScorePoints(name=name, meaning=score.meaning, value=values[name], weight=weights[name])
        for name, score in SCORES.items()
    ]


def score_node(request: Request, node: NodeCapacity, weights: Weights = DEFAULT_WEIGHTS) -> float:
    """The sum of the points; higher is preferred."""
    return score_devices(request, node, weights) + score_alone(weights)(node)


def score_devices(request: Request, node: NodeCapacity, weights: Weights) -> float:
    """The part of the score that is equal on all nodes of one kind.

    Holds for a request without preferences; with preferences the node's labels count, too.
    """
    scores = [(name, score) for name, score in SCORES.items() if weights[name] and not score.of_node_alone]
    return sum(score.of(request, node) * weights[name] for name, score in scores)


def score_alone(weights: Weights) -> Callable[[NodeCapacity], float]:
    """Node → the part of the score that is equal for all requests."""
    scores = [(score.of, weights[name]) for name, score in SCORES.items() if weights[name] and score.of_node_alone]
    return lambda node: sum(of(_ANY, node) * weight for of, weight in scores)


_ANY = Request()
