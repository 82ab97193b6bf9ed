"""The deltas of a request's answers, from the thread of the loop to the server's."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from workers.trainers.failures import InvalidConfig
from workers.trainers.inference.engine.interface import Interrupted
from workers.trainers.inference.serving.loop import GenerationLoop, Handle
from workers.trainers.inference.serving.openai.problems import ENDING, OVERLOADED, AnswerProblem, refusal, unavailable
from workers.trainers.inference.serving.requests import Closed, Delta, GenerationRequest, NeverFits, QueueFull

Result = TypeVar("Result")


class Deliveries:
    """Of all answers of one request; `submit` may be called, and deltas come, on other threads than the server's."""

    def __init__(self) -> None:
        self._events = asyncio.get_running_loop()
        self._queue: asyncio.Queue[tuple[int, Delta] | Exception] = asyncio.Queue()
        self._handles: list[Handle] = []
        self.is_aborted = False  # for other threads
        self.request_id = ""
        self.prompt_tokens = 0  # of a whole answer, as far as it has come
        self.completion_tokens = 0

    def submit(self, loop: GenerationLoop, requests: Sequence[GenerationRequest]) -> None:
        """All of them, or none. Raises AnswerProblem."""
        try:
            self._handles = loop.submit_all(
                [(request, partial(self._deliver, index)) for index, request in enumerate(requests)]
            )
        except NeverFits as error:
            raise AnswerProblem(f"{error}; ask for fewer of them", param="n") from error
        except QueueFull as error:
            raise _full(error) from error
        except Closed as error:
            raise unavailable("this replica is ending", ENDING) from error
        except InvalidConfig as error:
            raise AnswerProblem(str(error), param="response_format") from error

    async def deltas(self, param: str) -> AsyncIterator[tuple[int, Delta]]:
        """(index of the answer, delta), until all are finished. Raises AnswerProblem, and what `abort` was given."""
        unfinished = len(self._handles)
        try:
            while unfinished:
                found = await self._queue.get()
                if isinstance(found, Exception):
                    raise found
                index, delta = found
                if delta.refused is not None:
                    raise refusal(delta.refused, param)
                yield index, delta
                unfinished -= delta.is_last
        finally:
            if unfinished:
                self.cancel()

    async def called(self, loop: GenerationLoop, work: Callable[[], Result], adapter: str | None = None) -> Result:
        """What `work` returns, between two steps, while no answers are submitted. Raises NoSuchAdapter of an adapter,
        AnswerProblem, and what `abort` was given.
        """
        try:
            result = asyncio.ensure_future(asyncio.wrap_future(loop.call(work, adapter)))
        except QueueFull as error:
            raise _full(error) from error
        except Closed as error:
            raise unavailable("this replica is ending", ENDING) from error
        aborted = asyncio.ensure_future(self._queue.get())
        await asyncio.wait((result, aborted), return_when=asyncio.FIRST_COMPLETED)
        aborted.cancel()
        if result.done() and not result.cancelled():
            with suppress(Interrupted):
                return result.result()
        result.cancel()
        found = aborted.result() if aborted.done() and not aborted.cancelled() else None
        raise found if isinstance(found, Exception) else unavailable("this replica is ending", ENDING)

    def abort(self, error: Exception) -> None:
        """End the iteration with this error."""
        self.is_aborted = True
        self._queue.put_nowait(error)

    @property
    def usage(self) -> dict[str, int]:
        return {"prompt_tokens": self.prompt_tokens, "completion_tokens": self.completion_tokens}

    def cancel(self) -> None:
        """The answers are not wanted any more."""
        for handle in self._handles:
            handle.cancel()

    def _deliver(self, index: int, delta: Delta) -> None:
        with suppress(RuntimeError):  # the server has ended
            self._events.call_soon_threadsafe(self._queue.put_nowait, (index, delta))


def _full(error: QueueFull) -> AnswerProblem:
    return unavailable(f"as many requests wait as this replica takes: {error}", OVERLOADED)
