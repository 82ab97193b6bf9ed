"""What is remembered, while a plan is made, of nodes of a kind: the same devices, and as much of them free."""

from dataclasses import dataclass, field

from app.domain.scheduling.resources import NodeCapacity, Request


@dataclass
class Answer:
    """What is known of the jobs that ask for the same, and avoid the same nodes."""

    request: Request
    is_nowhere: bool = False  # nothing is left for them
    reason: str = ""


@dataclass
class Best:
    """Nodes of a kind that have the amounts and the names that some requests ask for, the best first."""

    entries: list[tuple[float, str, int]] = field(default_factory=list)  # (minus its own score, name, its change)
    seen: int = 0  # of the kind's arrivals


@dataclass
class Kind:
    number: int
    sample: NodeCapacity
    hardware: int
    is_full: bool  # its nodes run as many jobs as they may
    names: set[str] = field(default_factory=set)
    arrivals: list[tuple[str, int]] = field(default_factory=list)  # every node that became one, and by which change
    best: dict[int, Best] = field(default_factory=dict)  # by what requests ask for beside devices


@dataclass
class Fitting:
    """What the kinds are to requests that ask for the same devices, as far as there were any."""

    seen: int = 0
    kinds: list[tuple[float, Kind]] = field(default_factory=list)  # where it can start, with their score
    scores: dict[int, float] = field(default_factory=dict)  # the same by the kind's number
    open: dict[int, int] = field(default_factory=dict)  # how many of the devices are free, by the kind's number
