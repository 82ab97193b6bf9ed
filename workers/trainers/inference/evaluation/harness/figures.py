"""From what the harness has measured to our samples and figures."""

import math
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import stdev
from typing import Any

from lm_eval.api import metrics as harness

from app.domain.evaluations import open_metrics
from app.domain.evaluations.catalog import BENCHMARKS
from app.domain.evaluations.samples import Sample, Score
from app.domain.evaluations.statistics import Estimate, estimate
from app.domain.spec.inference import LM_EVAL
from workers.trainers.inference.engine.interface import Interrupted

Aggregation = Callable[[Sequence[Any]], Any]
Logged = Mapping[str, Any]  # a sample as the harness logs it: one for each document and filter

RESAMPLES = 100  # of metrics that are no function of sums over samples
_NO_FILTER, _STDERR = "none", "_stderr"
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST = 48
_SEPARATOR = "."


def _of_number(value: Any) -> Score:  # noqa: ANN401  what a task's function returns
    return float(value)


def _of_logprob(value: Any) -> Score:  # noqa: ANN401
    return -float(value), 1.0


def _of_weighted(value: Any) -> Score:  # noqa: ANN401
    return -float(value[0]), float(value[1])


def _of_bits(value: Any) -> Score:  # noqa: ANN401
    return -float(value[0]) / math.log(2), float(value[1])


# The score of a sample, for aggregations of the harness that are means or ratios of sums.
_SCORES: Mapping[Aggregation, Callable[[Any], Score]] = {
    harness.mean: _of_number,
    harness.perplexity: _of_logprob,
    harness.weighted_perplexity: _of_weighted,
    harness.bits_per_byte: _of_bits,
}


class HarnessMetrics:
    """The metrics of a measured task. ``values`` are the harness's, by "METRIC,FILTER"."""

    def __init__(self, values: Mapping[str, Any], logged: Sequence[Logged], aggregations: Mapping[str, Any]) -> None:
        self._logged = logged
        self._aggregations = aggregations
        self._values = {
            key: number
            for key, found in values.items()
            if "," in key and not key.partition(",")[0].endswith(_STDERR) and (number := _number(found)) is not None
        }

    def estimates(self, seed: int, interrupted: Callable[[], bool]) -> dict[str, Estimate]:
        """Value and standard error by our name. Raises Interrupted."""
        return {
            name_of(key): Estimate(value, self._stderr(key, seed, interrupted)) for key, value in self._values.items()
        }

    def samples(self) -> Iterator[Sample]:
        """One for each document, with the scores by all filters."""
        by_document: dict[int, list[Logged]] = {}
        for each in self._logged:
            by_document.setdefault(int(each["doc_id"]), []).append(each)
        yield from (self._sample(number, by_document[number]) for number in sorted(by_document))

    def _sample(self, number: int, logged: Sequence[Logged]) -> Sample:
        first = logged[0]
        return Sample(
            index=number,
            document=dict(first["doc"]) if isinstance(first["doc"], Mapping) else {"text": first["doc"]},
            doc_hash=first["doc_hash"],
            prompt_hash=first["prompt_hash"],
            target_hash=first["target_hash"],
            answer=_answer(first),
            scores={name: score for each in logged for name, score in self._scores(each)},
            more={"target": first["target"], "responses": {each["filter"]: each["filtered_resps"] for each in logged}},
        )

    def _scores(self, logged: Logged) -> Iterator[tuple[str, Score]]:
        for key in self._values:
            metric, _, chosen = key.partition(",")
            if chosen == logged["filter"] and metric in logged["metrics"]:
                score = self._score(metric, logged[metric])
                if score is not None:
                    yield name_of(key), score

    def _score(self, metric: str, value: Any) -> Score | None:  # noqa: ANN401
        of = _SCORES.get(self._aggregation(metric))
        try:
            return of(value) if of is not None else None
        except (TypeError, ValueError, IndexError):  # the harness could add it up, and we can't
            return None

    def _stderr(self, key: str, seed: int, interrupted: Callable[[], bool]) -> float | None:
        """By the scores; else by a bootstrap, for those metrics of which the harness makes one."""
        metric, _, chosen = key.partition(",")
        items = [each[metric] for each in self._logged if each["filter"] == chosen and metric in each["metrics"]]
        scores = [score for each in items if (score := self._score(metric, each)) is not None]
        if scores and len(scores) == len(items):
            kind = open_metrics.metric_of(BENCHMARKS[LM_EVAL], name_of(key))
            return estimate(open_metrics.of_scores(kind, scores), scores, seed).stderr if kind is not None else None
        aggregation = self._aggregation(metric)
        if len(items) < 2 or harness.stderr_for_metric(aggregation, RESAMPLES) is None:
            return None
        return _spread(_resampled(aggregation, items, seed, interrupted))

    def _aggregation(self, metric: str) -> Aggregation:
        """As the harness: the mean, where the task names none."""
        found: Aggregation = self._aggregations.get(metric, harness.mean)
        return found


def name_of(key: str) -> str:
    """Our name of the harness's "METRIC,FILTER": METRIC, or METRIC.FILTER where the answers were filtered."""
    metric, _, chosen = key.partition(",")
    parts = (metric,) if chosen in ("", _NO_FILTER) else (metric, chosen)
    return _SEPARATOR.join(_NOT_IN_NAMES.sub("_", part) for part in parts)[:_LONGEST]


def _answer(logged: Logged) -> object:
    """The filtered answer; of several continuations the likeliest."""
    responses, arguments = logged["filtered_resps"], logged["arguments"]
    if len(responses) == 1:
        return responses[0] if isinstance(responses[0], str) else None
    likelihoods = [each[0] for each in responses if isinstance(each, list | tuple)]
    if len(likelihoods) != len(arguments):
        return None
    return arguments[max(range(len(likelihoods)), key=likelihoods.__getitem__)][-1]


def _resampled(
    aggregation: Aggregation, items: Sequence[Any], seed: int, interrupted: Callable[[], bool]
) -> Iterator[float]:
    draws = random.Random(seed)  # noqa: S311  a bootstrap, repeatable by its seed
    for _ in range(RESAMPLES):
        if interrupted():
            raise Interrupted
        yield float(aggregation(draws.choices(items, k=len(items))))


def _spread(values: Iterable[float]) -> float | None:
    found = list(values)
    return stdev(found) if all(map(math.isfinite, found)) else None


def _number(found: object) -> float | None:
    try:
        return float(found)  # type: ignore[arg-type]  # what it is, float says
    except (TypeError, ValueError):
        return None
