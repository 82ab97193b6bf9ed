"""The order of one pass: first those to whom something is promised, then windows of every project's line."""

from collections.abc import Iterable, Sequence

from app.domain.scheduling.planner import Plan, Planning
from app.domain.scheduling.queue_order import QueuedJob

# The line is sorted for each window, so a long one is not read in many.
GROWTH = 4


def one_pass(
    planning: Planning, promised: Sequence[QueuedJob], windows: Iterable[Sequence[QueuedJob]],
    served: Sequence[str] | None = None,
) -> Plan:  # fmt: skip
    """The plan of a fresh ``planning``; ``served`` are the queues that may start jobs, None is every queue.

    Of ``windows`` no more are asked for than can still get something.
    """
    released = planning.keep_promises(promised)
    following = iter(windows)
    window = next(following, [] if released else None)
    while window is not None:
        planning.go_on([*released, *window])
        released = []
        if planning.is_full or (served is not None and not planning.has_room(served)):
            break  # whoever comes later in the line gets nothing either
        window = next(following, None)
    return planning.result()
