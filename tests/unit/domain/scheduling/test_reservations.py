"""What is kept for a job is used by others as long as they give it back in time."""

from app.domain.scheduling.node_classes import NodeClasses
from app.domain.scheduling.preemption import Room
from app.domain.scheduling.queue_order import QueuedJob
from app.domain.scheduling.reservations import Reservations
from app.domain.scheduling.resources import NOTHING, Device, NodeCapacity, Request

SLOT = Device(index=0, type="cpu")


def job(max_seconds: float | None) -> QueuedJob:
    return QueuedJob(job_id="j", priority=5, since=0, request=Request(), max_seconds=max_seconds)


def cluster() -> tuple[dict[str, NodeCapacity], Reservations]:
    nodes = {"n": NodeCapacity(name="n", devices=(SLOT,), free=frozenset({0}))}
    return nodes, Reservations(nodes, NodeClasses(nodes))


def test_a_gap_is_found_once_something_is_kept_though_there_was_none_before() -> None:
    nodes, kept = cluster()
    assert [kept.take(job(60), ()), kept.take(job(60), ())] == [None, None]

    nodes["n"] = kept.reserve(Room(node="n", devices=(SLOT,), amounts=NOTHING, seconds=100))

    assert (nodes["n"].free, nodes["n"].reserved) == (frozenset(), frozenset({0}))
    assert kept.take(job(60), ()) == ("n", (SLOT,))


def test_a_gap_goes_only_to_jobs_that_end_in_time_and_may_use_the_node() -> None:
    nodes, kept = cluster()
    nodes["n"] = kept.reserve(Room(node="n", devices=(SLOT,), amounts=NOTHING, seconds=100))

    assert kept.take(job(None), ()) is None
    assert kept.take(job(101), ()) is None
    assert kept.take(job(60), {"n"}) is None


def test_a_gap_is_given_once() -> None:
    nodes, kept = cluster()
    nodes["n"] = kept.reserve(Room(node="n", devices=(SLOT,), amounts=NOTHING, seconds=100))

    assert [kept.take(job(60), ()) for _ in range(3)] == [("n", (SLOT,)), None, None]
