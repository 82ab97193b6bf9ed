"""All rollouts of a job, as one rank of the training asks them: each gets a part of its prompts."""

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from functools import partial
from itertools import pairwise
from typing import TypeVar

from workers.trainers.inference.engine.interface import Prompt
from workers.trainers.rollouts.client import AWAY_SECONDS, RolloutClient, WeightHandover
from workers.trainers.rollouts.completer import SamplingOptions
from workers.trainers.rollouts.places import InstanceAddress
from workers.trainers.rollouts.waiting import Section, WaitingSection, unannounced
from workers.trainers.rollouts.weights import Weights

_POLL_SECONDS = 0.2  # for requests that end the wait
_Answer = TypeVar("_Answer")


class BrokenOff(Exception):
    """The training has not waited for its completions; it may ask for the same ones again."""


class Rollouts:
    """``rank``: of the training; the first one hands new weights to every rollout, before it asks them.

    ``breaks_off``: whether the training has something else to do than to wait, such as to save and end.
    """

    def __init__(
        self,
        places: Sequence[InstanceAddress],
        secret: bytes,
        *,
        rank: int = 0,
        away_seconds: float = AWAY_SECONDS,
        section: Section = unannounced,
        breaks_off: Callable[[], bool] = lambda: False,
    ) -> None:
        self._places = places
        self._rank = rank
        self._breaks_off = breaks_off
        self._make = partial(
            RolloutClient,
            secret=secret,
            is_leader=rank == 0,
            away_seconds=away_seconds,
            waiting=WaitingSection(section),
        )
        self._clients: list[RolloutClient] = []  # known after the first call

    def complete(
        self, prompts: Sequence[Prompt], options: SamplingOptions, weights: Weights
    ) -> tuple[list[list[int]], WeightHandover]:
        """The tokens of each completion, and what handing over the weights took: the seconds of the slowest rollout,
        the bytes of all. Raises RolloutUnreachable, RolloutFailed and BrokenOff.
        """
        clients = self._found()
        # Ranks have equally many prompts: where they are fewer than rollouts, each rank asks other ones first.
        first = self._rank * len(prompts) % len(clients)
        clients = [*clients[first:], *clients[:first]]
        for each in clients:
            each.handed = WeightHandover()
        parts = split(prompts, len(clients))
        asks = [partial(each.complete, part, options, weights) for each, part in zip(clients, parts, strict=True)]
        try:
            answers = self._all(clients, asks)
        except BaseException:
            self.close()  # abandoned clients ask no more
            raise
        found = [completion for answer in answers for completion in answer]
        seconds = max(each.handed.seconds for each in clients)
        return found, WeightHandover(seconds, sum(each.handed.bytes for each in clients))

    def close(self) -> None:
        for each in self._clients:
            each.close()
        self._clients = []

    def _found(self) -> list[RolloutClient]:
        if not self._clients:
            firsts = [self._make(place, 0) for place in self._places]
            ranks = self._all(firsts, [each.ranks for each in firsts])
            self._clients = [
                self._make(place, rank)
                for place, count in zip(self._places, ranks, strict=True)
                for rank in range(count)
            ]
        return self._clients

    def _all(self, clients: Sequence[RolloutClient], asks: Sequence[Callable[[], _Answer]]) -> list[_Answer]:
        """What each of the clients answers; with the first failure, or BrokenOff, all of them are abandoned."""
        with ThreadPoolExecutor(len(clients), thread_name_prefix="rollout") as pool:
            asked = [pool.submit(ask) for ask in asks]
            try:
                missing = {*asked}
                while missing:
                    done, missing = wait(missing, _POLL_SECONDS, FIRST_COMPLETED)
                    for each in done:
                        each.result()
                    if missing and self._breaks_off():
                        raise BrokenOff
            except BaseException:
                for client in clients:
                    client.abandon()
                raise
        return [each.result() for each in asked]


def split(prompts: Sequence[Prompt], parts: int) -> list[Sequence[Prompt]]:
    """Consecutive parts in order, whose sizes differ by one at most."""
    size, larger = divmod(len(prompts), parts)
    borders = [0]
    for number in range(parts):
        borders.append(borders[-1] + size + (number < larger))
    return [prompts[begin:end] for begin, end in pairwise(borders)]
