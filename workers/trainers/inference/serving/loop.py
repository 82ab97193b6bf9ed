"""Answers requests while others come and end: one thread, which alone uses the model."""

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeVar

import torch

from workers.trainers.inference.engine.equal_lengths import EqualLengths
from workers.trainers.inference.engine.interface import Interrupted, RequestRefused
from workers.trainers.inference.engine.sampling import Sampler
from workers.trainers.inference.engine.transformers_engine import TransformersEngine
from workers.trainers.inference.serving.admission import ENGINE_ENDED, limits_of, refuse
from workers.trainers.inference.serving.answer import AnswerInProgress
from workers.trainers.inference.serving.equal_schedule import EqualSchedule
from workers.trainers.inference.serving.loaded_adapters import LoadedAdapters
from workers.trainers.inference.serving.paged_schedule import PagedSchedule
from workers.trainers.inference.serving.requests import (
    AdapterSource,
    Closed,
    Delta,
    GenerationRequest,
    LoopCounts,
    NeverFits,
    NoSuchAdapter,
    QueueFull,
    Steps,
)
from workers.trainers.inference.serving.schedule import RequestSchedule
from workers.trainers.inference.serving.waiting import WaitingRequests

_LOG = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True)
class _Call:
    """Something to run between two steps."""

    future: Future[Any]
    work: Callable[[], Any]
    adapter: str | None


class Handle:
    """An accepted request."""

    def __init__(self, answer: AnswerInProgress, wake: Callable[[], None]) -> None:
        self._answer = answer
        self._wake = wake

    def cancel(self) -> None:
        """The answer is not wanted any more: its place is free at the next step. No delta follows the pending one."""
        self._answer.is_cancelled = True
        self._wake()


class GenerationLoop:
    """Requests wait for a place and for their adapter; `submit` and `call` are for any
    thread. Deltas are delivered on the loop's thread, which the receivers must neither stop nor raise in.
    """

    def __init__(
        self,
        engine: TransformersEngine,
        adapters: AdapterSource,
        *,
        max_waiting: int,
        on_step: Callable[[Steps], None],
        max_context: int | None = None,
        max_loaded: int = 32,
        max_rank: int = 64,
    ) -> None:
        """Tries out how the model generates, which takes a moment."""
        self._engine = engine
        self._max_waiting = max_waiting
        self._limits = limits_of(engine, max_context)
        self._on_step = on_step
        self._loaded = LoadedAdapters(engine.model, most=max_loaded, max_rank=max_rank)
        self._schedule = self._schedule_of(engine)
        self._waiting = WaitingRequests(self._loaded, adapters, self._wake)
        self._changed = threading.Condition()
        self._arrived: list[AnswerInProgress] = []
        self._calls: list[_Call] = []
        self._is_awake = False
        self._accepts = True
        self._closes = False
        self._open = 0  # requests and calls that have not ended
        self._in_flight = 0
        self._is_calling = False
        self._steps, self._tokens = 0, 0
        self._names = count()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="generation", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def counts(self) -> LoopCounts:
        return LoopCounts(in_flight=self._in_flight, waiting=self._open - self._in_flight, adapters=len(self._loaded))

    @property
    def error(self) -> Exception | None:
        """What has ended the loop; the model can't be used any more."""
        return self._error

    @property
    def closes(self) -> bool:
        """Whether it ends now; calls have to give up."""
        return self._closes

    def submit(self, request: GenerationRequest, on_delta: Callable[[Delta], None]) -> Handle:
        """As `submit_all`."""
        return self.submit_all([(request, on_delta)])[0]

    def submit_all(self, requests: Sequence[tuple[GenerationRequest, Callable[[Delta], None]]]) -> list[Handle]:
        """All of them, or none. Raises QueueFull, NeverFits, Closed, and InvalidConfig: the model generates nothing, or
        the format can't be applied.
        """
        self._engine.generation()
        if len(requests) > self._most_open:
            raise NeverFits(f"{len(requests)} answers at once, and this replica takes {self._most_open} at most")
        samplers: dict[int, Sampler] = {}  # by the identity of what they apply: a format is compiled once
        answers = []
        for request, on_delta in requests:
            sampler = samplers.get(id(request.sampling)) or self._engine.sampler(request.sampling, is_shared=True)
            samplers[id(request.sampling)] = sampler
            answers.append(AnswerInProgress(str(next(self._names)), request, sampler, self._engine.tokenizer, on_delta))
        with self._changed:
            self._take(len(answers))
            self._arrived += answers
        self._wake()
        return [Handle(answer, self._wake) for answer in answers]

    def call(self, work: Callable[[], T], adapter: str | None = None) -> Future[T]:
        """Run something on the loop's thread between two steps, with the model itself, or with an adapter: then the
        result raises NoSuchAdapter where that is not loaded. Raises QueueFull and Closed.
        """
        future: Future[T] = Future()
        with self._changed:
            self._take(1)
            self._calls.append(_Call(future, work, adapter))
        self._wake()
        return future

    def drain(self, seconds: float) -> bool:
        """Take no more requests, and wait for those that there are; whether all have ended."""
        with self._changed:
            self._accepts = False
            return self._changed.wait_for(lambda: not self._open or not self._thread.is_alive(), seconds)

    def close(self) -> None:
        """End now; requests without an answer are refused."""
        with self._changed:
            self._accepts, self._closes = False, True
        self._wake()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def _most_open(self) -> int:
        return self._max_waiting + self._schedule.places

    def _take(self, requests: int) -> None:
        """With `_changed` held. Raises QueueFull and Closed."""
        if not self._accepts:
            raise Closed
        if self._open + requests > self._most_open:
            raise QueueFull(f"{self._open} requests wait or are being answered")
        self._open += requests

    # ---------------------------------------------------------------------- on the loop's thread

    def _schedule_of(self, engine: TransformersEngine) -> RequestSchedule:
        size = engine.generation().size if engine.generates else None
        if size is not None:
            return PagedSchedule(engine.model, size, self._limits.context, self._loaded)
        return EqualSchedule(
            EqualLengths(engine.model, engine.tokenizer.pad_token_id or 0), self._loaded, lambda: self._closes
        )

    def _run(self) -> None:
        if self._engine.model.device.type == "cuda":
            torch.cuda.set_device(self._engine.model.device)  # threads have a device of their own
        try:
            while self._await_work():
                self._attend()
                self._admit()
                if self._schedule.answers:
                    self._schedule.run(self._after)
        except Interrupted:
            pass
        except Exception as error:  # noqa: BLE001  (whatever it is, the owner has to learn of it)
            _LOG.exception("the generation loop has ended")
            self._error = error
        finally:
            self._end()

    def _await_work(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._is_awake or self._closes or self._schedule.answers)
            self._is_awake = False
            return not self._closes

    def _after(self, answers: Sequence[AnswerInProgress]) -> None:
        """A step has advanced these."""
        self._steps += 1
        self._tokens += sum(not each.is_spoiled for each in answers)
        for answer in answers:
            answer.advance()
        self._ended(sum(each.is_finished for each in answers))
        self._on_step(Steps(steps=self._steps, tokens=self._tokens))
        self._attend()

    def _attend(self) -> None:
        """Do what is not a step."""
        with self._changed:
            calls, self._calls = self._calls, []
        for call in calls:
            self._answer_call(call)
        for holder in (self._waiting, self._schedule):
            for answer in holder.answers:
                if answer.is_cancelled:
                    holder.remove(answer)
                    self._ended(1)

    def _admit(self) -> None:
        with self._changed:
            arrived, self._arrived = self._arrived, []
        for answer in arrived:
            if refused := refuse(answer.request, self._limits):
                answer.refuse(refused)
            elif not answer.is_cancelled:
                self._waiting.add(answer)
                continue
            self._ended(1)
        self._ended(len(self._waiting.admit(self._schedule)))

    def _ended(self, requests: int) -> None:
        self._in_flight = len(self._schedule.answers) + self._is_calling
        if requests:
            with self._changed:
                self._open -= requests
                self._is_awake = True  # another request may have a place now
                self._changed.notify_all()

    def _end(self) -> None:
        """Nothing is left without a word."""
        with self._changed:
            self._accepts = False
            arrived, self._arrived = self._arrived, []
            calls, self._calls = self._calls, []
        refused = RequestRefused(code=ENGINE_ENDED, message="the replica ended before it had finished the answer")
        for answer in (*self._schedule.answers, *self._waiting.answers, *arrived):
            answer.refuse(refused)
        for call in calls:
            call.future.cancel()
        self._waiting.close()
        with self._changed:
            self._open = self._in_flight = 0
            self._changed.notify_all()

    def _answer_call(self, call: _Call) -> None:
        future = call.future
        if not future.set_running_or_notify_cancel():
            self._ended(1)
            return
        self._is_calling = True
        self._ended(0)
        try:
            if call.adapter is not None and call.adapter not in self._loaded:
                raise NoSuchAdapter
            with self._loaded.instead(call.adapter):
                result = call.work()
        except Exception as error:  # noqa: BLE001  (it belongs to the caller)
            self._has_called()
            future.set_exception(error)
        else:
            self._has_called()
            future.set_result(result)

    def _has_called(self) -> None:
        self._is_calling = False
        self._ended(1)

    def _wake(self) -> None:
        with self._changed:
            self._is_awake = True
            self._changed.notify_all()
