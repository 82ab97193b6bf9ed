"""Cached results during a pass per kind of node; nodes of a kind have the same devices, equally free."""

from dataclasses import dataclass, field

from app.domain.scheduling.resources import NodeCapacity, Request


@dataclass
class RequestResult:
    """Cached result for jobs with equal requests that avoid the same nodes."""

    request: Request
    is_unplaceable: bool = False  # they fit on no node
    reason: str = ""


@dataclass
class RankedNodes:
    """Heap of the nodes of a kind that have the requested amounts and labels, the best first."""

    entries: list[tuple[float, str, int]] = field(default_factory=list)  # (minus its own score, name, change number)
    seen: int = 0  # number of the kind's arrivals that are in the heap


@dataclass
class NodeKind:
    number: int
    sample: NodeCapacity
    hardware: int
    is_full: bool  # its nodes run their maximum number of jobs
    names: set[str] = field(default_factory=set)
    arrivals: list[tuple[str, int]] = field(
        default_factory=list
    )  # (node, change number) of every node that joined the kind
    best: dict[int, RankedNodes] = field(default_factory=dict)  # by the request apart from its devices


@dataclass
class FittingKinds:
    """How the known kinds fit requests for the same devices."""

    seen: int = 0  # number of kinds that were evaluated
    kinds: list[tuple[float, NodeKind]] = field(default_factory=list)  # (score, kind) where the request can start
    scores: dict[int, float] = field(default_factory=dict)  # the same by number of the kind
    open: dict[int, int] = field(default_factory=dict)  # number of free matching devices, by number of the kind
