"""Continuous batching: requests of one adapter share steps, and adapters alternate."""

import gc
from collections.abc import Collection, Hashable

import torch
from transformers import PreTrainedModel

from workers.trainers.inference.engine.cache_size import PAGE, CacheSize
from workers.trainers.inference.engine.paged_batch import PagedBatch
from workers.trainers.inference.engine.sampling import choose_each
from workers.trainers.inference.serving.answer import AnswerInProgress
from workers.trainers.inference.serving.loaded_adapters import LoadedAdapters
from workers.trainers.inference.serving.schedule import After

_SLICE = 8  # steps, while others wait


class PagedSchedule:
    """Reserves the pages of the whole answer for each request, so that none is ever put back for want of memory."""

    def __init__(self, model: PreTrainedModel, size: CacheSize, context: int, adapters: LoadedAdapters) -> None:
        self._model = model
        self._size = size
        self._blocks = size.blocks([min(context, size.longest)] * size.requests)
        self._adapters = adapters
        self._groups: dict[Hashable, dict[str, AnswerInProgress]] = {}  # in the order in which they are served
        self._begun: set[str] = set()  # requests that the batch knows
        self._current: Hashable = None  # the group that is served
        self._steps = 0  # of the current group since it is served
        self._batch = self._clean_batch()

    @property
    def places(self) -> int:
        return self._size.requests

    @property
    def answers(self) -> Collection[AnswerInProgress]:
        return [answer for group in self._groups.values() for answer in group.values()]

    def has_room(self, answer: AnswerInProgress) -> bool:
        held = [_pages(each) for each in self.answers]
        return len(held) < self._size.requests and sum(held) + _pages(answer) <= self._blocks

    def add(self, answer: AnswerInProgress) -> None:
        self._groups.setdefault(answer.group, {})[answer.name] = answer

    def remove(self, answer: AnswerInProgress) -> None:
        if answer.name in self._begun:
            self._batch.remove(answer.name)
        self._drop(answer)

    @torch.inference_mode()
    def run(self, after: After) -> None:
        self._alternate()
        self._begin()
        if not self._batch.prepare():
            raise RuntimeError(f"the engine has no step for any of its {len(self.answers)} requests")
        members = self._groups[self._current]
        answers = [members[name] for name in self._batch.step()]
        if any(each.is_spoiled for each in answers):
            self._start_again([each for each in answers if each.is_spoiled], is_shared=len(members) > 1)
        for each in answers:
            if each.is_finished:
                self._drop(each)
        self._steps += 1
        after(answers)

    def _alternate(self) -> None:
        """Serve the next group, when this one has had its steps."""
        others_wait = len(self._groups) > 1 and self._steps >= _SLICE
        if self._current in self._groups and not others_wait:
            return
        if (members := self._groups.pop(self._current, None)) is not None:
            self._groups[self._current] = members  # to the end
            for name in members:
                if name in self._begun:
                    self._batch.park(name)
        self._current, self._steps = next(iter(self._groups)), 0
        for name in self._groups[self._current]:
            if name in self._begun:
                self._batch.unpark(name)
        adapter = next(iter(self._groups[self._current].values())).request.adapter
        self._adapters.use(adapter)

    @torch.inference_mode()
    def _clean_batch(self) -> PagedBatch:
        """With the memory for all that it will hold."""
        return PagedBatch(self._model, self._size, self._blocks, choose_each)

    def _begin(self) -> None:
        """Let the new requests of the current group take part."""
        for name, answer in self._groups[self._current].items():
            if name not in self._begun:
                self._begun.add(name)
                self._batch.add(name, answer.running)

    def _start_again(self, spoiled: list[AnswerInProgress], *, is_shared: bool) -> None:
        """Masked values of the shared cache are multiplied by 0, which leaves NaN of one request in those of all: who
        shared it gets the token once more, apart. All begin again with what they have, in a clean cache.
        """
        del self._batch
        gc.collect()  # before there is memory for another one
        self._batch = self._clean_batch()
        self._begun.clear()
        self._steps = _SLICE
        for answer in spoiled if is_shared else ():
            self._drop(answer)
            answer.separate()
            self.add(answer)

    def _drop(self, answer: AnswerInProgress) -> None:
        self._begun.discard(answer.name)
        group = self._groups[answer.group]
        group.pop(answer.name, None)
        if not group:
            del self._groups[answer.group]
            # Its adapter may be loaded anew before the next request comes.
            self._current = None if self._current == answer.group else self._current


def _pages(answer: AnswerInProgress) -> int:
    return -(-answer.length // PAGE)
