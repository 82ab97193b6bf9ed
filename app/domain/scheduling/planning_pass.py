"""The steps of one pass: first jobs with a reservation, then windows of every project's line."""

from collections.abc import Iterable, Sequence

from app.domain.scheduling.planner import Plan, Planning
from app.domain.scheduling.queue_order import QueuedJob

# The line is sorted for each window, so windows grow by this factor.
GROWTH = 4


def run_pass(
    planning: Planning,
    reserved: Sequence[QueuedJob],
    windows: Iterable[Sequence[QueuedJob]],
    served: Sequence[str] | None = None,
) -> Plan:
    """Run a fresh ``planning``; ``served`` are the queues that may start jobs, None is every queue.

    ``windows`` is consumed only as long as jobs can still start.
    """
    released = planning.serve_reserved_jobs(reserved)
    following = iter(windows)
    window = next(following, [] if released else None)
    while window is not None:
        planning.go_on([*released, *window])
        released = []
        if planning.is_full or (served is not None and not planning.has_room(served)):
            break  # no later job in the line can start either
        window = next(following, None)
    return planning.result()
