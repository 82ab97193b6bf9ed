"""All rollouts of a job, as one rank of the training asks them: each gets a part of its prompts."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from itertools import pairwise

from workers.trainers.inference.engine.interface import Prompt
from workers.trainers.rollouts.client import AWAY_SECONDS, Handover, RolloutClient
from workers.trainers.rollouts.completer import SamplingOptions
from workers.trainers.rollouts.places import Place
from workers.trainers.rollouts.waiting import Section, Waiting, unannounced
from workers.trainers.rollouts.weights import Weights


class Rollouts:
    """``rank``: of the training; the first one hands new weights to every rollout, before it asks them."""

    def __init__(
        self,
        places: Sequence[Place],
        secret: bytes,
        *,
        rank: int = 0,
        away_seconds: float = AWAY_SECONDS,
        section: Section = unannounced,
    ) -> None:
        self._places = places
        self._rank = rank
        self._make = partial(
            RolloutClient, secret=secret, is_leader=rank == 0, away_seconds=away_seconds, waiting=Waiting(section)
        )
        self._clients: list[RolloutClient] = []  # known after the first call

    def complete(
        self, prompts: Sequence[Prompt], options: SamplingOptions, weights: Weights
    ) -> tuple[list[list[int]], Handover]:
        """The tokens of each completion, and what handing over the weights took: the seconds of the slowest rollout,
        the bytes of all. Raises RolloutUnreachable and RolloutFailed.
        """
        clients = self._found()
        # Ranks have equally many prompts: where they are fewer than rollouts, each rank asks other ones first.
        first = self._rank * len(prompts) % len(clients)
        clients = [*clients[first:], *clients[:first]]
        for each in clients:
            each.handed = Handover()
        parts = split(prompts, len(clients))
        with ThreadPoolExecutor(len(clients), thread_name_prefix="rollout") as pool:
            asked = [
                pool.submit(each.complete, part, options, weights) for each, part in zip(clients, parts, strict=True)
            ]
            try:
                for done in as_completed(asked):
                    done.result()
            except BaseException:  # the training ends by it, without the answers of the others
                for each in clients:
                    each.abandon()
                raise
            found = [completion for request in asked for completion in request.result()]
        seconds = max(each.handed.seconds for each in clients)
        return found, Handover(seconds, sum(each.handed.bytes for each in clients))

    def close(self) -> None:
        for each in self._clients:
            each.close()

    def _found(self) -> list[RolloutClient]:
        if not self._clients:
            with ThreadPoolExecutor(len(self._places)) as pool:
                ranks = list(pool.map(lambda place: self._make(place, 0).ranks(), self._places))
            self._clients = [
                self._make(place, rank)
                for place, count in zip(self._places, ranks, strict=True)
                for rank in range(count)
            ]
        return self._clients


def split(prompts: Sequence[Prompt], parts: int) -> list[Sequence[Prompt]]:
    """Consecutive parts in order, whose sizes differ by one at most."""
    size, larger = divmod(len(prompts), parts)
    borders = [0]
    for number in range(parts):
        borders.append(borders[-1] + size + (number < larger))
    return [prompts[begin:end] for begin, end in pairwise(borders)]
