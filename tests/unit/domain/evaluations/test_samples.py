"""Samples are lines of JSON that are read back as they were."""

import json
import math
from typing import Any

import pytest

from app.domain.evaluations.samples import Sample, digest


def test_a_sample_is_read_back_from_its_line() -> None:
    sample = Sample(
        index=3,
        document={"prompt": "Größe?", "n": 1},
        doc_hash=digest({"prompt": "Größe?", "n": 1}),
        answer="groß\n",
        scores={"f1": 0.5, "bleu": (1.0, 2.0, *[0.0] * 8), "loss": (3.5, 2.0), "margin": -math.inf},
        more={"finish_reason": "stop"},
    )

    line = sample.to_line()

    assert "\n" not in line
    assert Sample.from_line(line.encode()) == sample
    assert list(json.loads(line)) == sorted(json.loads(line))


@pytest.mark.parametrize(
    "line", ["", "[]", "{}", '{"index": 1}', '{"scores": {}}', '{"index": 1, "scores": []}', "[" * 100_000]
)
def test_a_line_that_is_no_sample_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"sample|Expecting"):
        Sample.from_line(line)


NO_SCORES: list[Any] = [None, 10**400, "1", True, {}, [], [1], [1, -1], [1, 2, 3]]


@pytest.mark.parametrize(
    "values",
    [
        {"index": -1},
        {"index": 10**400},
        {"index": "1"},
        {"index": True},
        {"doc_hash": []},
        {"prompt_hash": None},
        {"target_hash": "x" * 65},
        *({"scores": {"f1": score}} for score in NO_SCORES),
        {"scores": {"bleu": [1] * 9 + [-1]}},
        {"scores": {"bleu": [1] * 9 + [0.5]}},
        {"scores": {"bleu": [1] * 9 + [10**400]}},
        {"scores": {"loss": [[1], 2]}},
        {"scores": {"loss": [1, math.nan]}},
    ],
)
def test_values_of_other_types_or_sizes_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no sample of an evaluation"):
        Sample.from_line(json.dumps({"index": 1, "scores": {}, **values}))


def test_comparisons_keep_only_hashes_and_the_scores_that_they_need() -> None:
    sample = Sample(index=1, document={"a": 1}, doc_hash="d", answer="b", scores={"f1": 1.0, "x": 2.0}, more={"c": 3})

    assert sample.scored({"f1"}) == Sample(index=1, doc_hash="d", scores={"f1": 1.0})


def test_unknown_fields_of_later_versions_are_ignored() -> None:
    assert Sample.from_line('{"index": 1, "scores": {"f1": 1}, "later": true}').scores == {"f1": 1.0}


def test_a_digest_does_not_depend_on_the_order_of_keys_and_takes_any_text() -> None:
    assert digest({"a": 1, "b": "\udc80"}) == digest({"b": "\udc80", "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})
