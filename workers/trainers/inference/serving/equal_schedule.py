"""For models that continuous batching does not serve: prompts of one length share steps until they have ended."""

from collections.abc import Callable, Collection, Sequence

import torch

from workers.trainers.inference.engine.equal_lengths import MOST_ROWS, EqualLengths
from workers.trainers.inference.engine.sampling import RunningRequest, choose_each
from workers.trainers.inference.serving.answer import CANCELLED, AnswerInProgress
from workers.trainers.inference.serving.loaded_adapters import LoadedAdapters
from workers.trainers.inference.serving.schedule import After


class EqualSchedule:
    """One group at a time; what comes meanwhile waits."""

    def __init__(self, generation: EqualLengths, adapters: LoadedAdapters, ends: Callable[[], bool]) -> None:
        self._generation = generation
        self._adapters = adapters
        self._ends = ends  # whether the loop ends: the group is not finished then
        self._group: dict[str, AnswerInProgress] = {}
        self._runs = False

    @property
    def places(self) -> int:
        return MOST_ROWS

    @property
    def answers(self) -> Collection[AnswerInProgress]:
        return list(self._group.values())

    def has_room(self, answer: AnswerInProgress) -> bool:
        if self._runs or len(self._group) == MOST_ROWS:
            return False
        first = next(iter(self._group.values()), answer)
        return first.group == answer.group and len(first.request.prompt) == len(answer.request.prompt)

    def add(self, answer: AnswerInProgress) -> None:
        self._group[answer.name] = answer

    def remove(self, answer: AnswerInProgress) -> None:
        answer.running.finish_reason = CANCELLED
        del self._group[answer.name]

    def run(self, after: After) -> None:
        """Raises Interrupted when the loop ends."""
        answers = self.answers
        self._adapters.use(next(iter(answers)).request.adapter)
        by_running = {id(each.running): each for each in answers}

        def choose(running: Sequence[RunningRequest], logits: torch.Tensor) -> torch.Tensor:
            chosen = choose_each(running, logits)
            advanced = [by_running[id(each)] for each in running]
            for each in advanced:
                if each.is_finished:
                    self._group.pop(each.name, None)
            after(advanced)
            return chosen

        self._runs = True
        try:
            new = max(each.request.sampling.max_new_tokens for each in answers)
            self._generation.generate([each.running for each in answers], choose, new, self._ends)
        finally:
            self._runs = False
