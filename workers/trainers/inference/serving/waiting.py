"""Requests that wait for a place or for their adapter, in the order in which they came."""

from collections.abc import Callable

from workers.rank.run_context import AdapterNotLoaded
from workers.trainers.inference.engine.interface import RequestRefused
from workers.trainers.inference.serving.admission import ADAPTER_NOT_LOADED
from workers.trainers.inference.serving.answer import AnswerInProgress
from workers.trainers.inference.serving.fetches import Fetches
from workers.trainers.inference.serving.loaded_adapters import LoadedAdapters
from workers.trainers.inference.serving.requests import AdapterSource
from workers.trainers.inference.serving.schedule import RequestSchedule


class WaitingRequests:
    """A request whose adapter is being fetched keeps back no other one; a request without a place keeps back all that
    came later, because else a long one might wait forever.
    """

    def __init__(self, loaded: LoadedAdapters, source: AdapterSource, wake: Callable[[], None]) -> None:
        self._loaded = loaded
        self._fetches = Fetches(source, wake)
        self._answers: dict[str, AnswerInProgress] = {}

    @property
    def answers(self) -> list[AnswerInProgress]:
        return list(self._answers.values())

    def add(self, answer: AnswerInProgress) -> None:
        self._answers[answer.name] = answer

    def remove(self, answer: AnswerInProgress) -> None:
        del self._answers[answer.name]

    def admit(self, schedule: RequestSchedule) -> list[AnswerInProgress]:
        """Let begin who can; those that are refused, because their adapter can't be had."""
        refused: list[AnswerInProgress] = []
        for answer in self.answers:
            if answer.name not in self._answers:  # refused with another one
                continue
            try:
                is_ready = self._has_adapter(answer, schedule)
            except AdapterNotLoaded as error:
                refused += self._refuse(answer.request.adapter, str(error))
                continue
            if is_ready is None:
                continue
            if not is_ready or not schedule.has_room(answer):
                break
            self.remove(answer)
            schedule.add(answer)
        return refused

    def close(self) -> None:
        self._fetches.close()

    def _has_adapter(self, answer: AnswerInProgress, schedule: RequestSchedule) -> bool | None:
        """None: it is being fetched; False: there is no room for it. Raises AdapterNotLoaded."""
        name = answer.request.adapter
        if name is None or name in self._loaded:
            return True
        self._loaded.check_takes_any()
        directory = self._fetches.directory(name)
        if directory is None:
            return None
        in_use = {each.request.adapter for each in schedule.answers if each.request.adapter}
        if not self._loaded.has_room(in_use):
            return False
        self._fetches.forget(name)
        if not directory.is_dir():  # others were fetched meanwhile, and it was removed for them
            self._fetches.directory(name)
            return None
        self._loaded.load(name, directory, in_use)
        return True

    def _refuse(self, adapter: str | None, message: str) -> list[AnswerInProgress]:
        refused = [each for each in self.answers if each.request.adapter == adapter]
        for answer in refused:
            self.remove(answer)
            answer.refuse(RequestRefused(code=ADAPTER_NOT_LOADED, message=message))
        return refused
