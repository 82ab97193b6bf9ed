"""Waits for several answers at a time, gives them in their order, and stops waiting when the run is to stop."""

import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import TypeVar, cast

from workers.trainers.inference.engine.interface import Interrupted

IN_FLIGHT = 8  # functions at a time
POLL_SECONDS = 0.2  # between two questions whether the caller is interrupted
_Answer = TypeVar("_Answer")


def in_order(
    work: Sequence[Callable[[], _Answer]], interrupted: Callable[[], bool], *, at_once: int = IN_FLIGHT
) -> Generator[_Answer]:
    """What the functions return, each as soon as those before it are there. To be read to its end, or closed.

    Raises the first error of any, and Interrupted. The functions are called on a few threads, which do not keep the
    process from ending: one may wait for an answer that nothing needs any more.
    """
    found: dict[int, _Answer] = {}
    ended: queue.SimpleQueue[tuple[int, _Answer | None, BaseException | None]] = queue.SimpleQueue()
    left, is_over = deque(enumerate(work)), threading.Event()

    def serve() -> None:
        while left and not is_over.is_set():
            with contextlib.suppress(IndexError):  # another thread took the last one
                number, function = left.popleft()
                try:
                    ended.put((number, function(), None))
                except BaseException as error:  # noqa: BLE001  raised where the answers are awaited
                    ended.put((number, None, error))

    for _ in range(min(at_once, len(work))):
        threading.Thread(target=serve, name="asking", daemon=True).start()
    try:
        for each in range(len(work)):
            while each not in found:
                if interrupted():
                    raise Interrupted
                with contextlib.suppress(queue.Empty):
                    number, answer, error = ended.get(timeout=POLL_SECONDS)
                    if error is not None:
                        raise error
                    found[number] = cast("_Answer", answer)
            yield found.pop(each)
    finally:
        is_over.set()
