"""Samples are lines of JSON that are read back as they were."""

import json

import pytest

from app.domain.evaluations.samples import Sample, digest


def test_a_sample_is_read_back_from_its_line() -> None:
    sample = Sample(
        index=3,
        document={"prompt": "Größe?", "n": 1},
        doc_hash=digest({"prompt": "Größe?", "n": 1}),
        answer="groß\n",
        scores={"f1": 0.5, "bleu": (1.0, 2.0)},
        more={"finish_reason": "stop"},
    )

    line = sample.to_line()

    assert "\n" not in line
    assert Sample.from_line(line.encode()) == sample
    assert list(json.loads(line)) == sorted(json.loads(line))


@pytest.mark.parametrize("line", ["", "[]", "{}", '{"index": 1}', '{"scores": {}}', '{"index": 1, "scores": []}'])
def test_a_line_that_is_no_sample_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"sample|Expecting"):
        Sample.from_line(line)


def test_unknown_fields_of_later_versions_are_ignored() -> None:
    assert Sample.from_line('{"index": 1, "scores": {"f1": 1}, "later": true}').scores == {"f1": 1.0}


def test_a_digest_does_not_depend_on_the_order_of_keys_and_takes_any_text() -> None:
    assert digest({"a": 1, "b": "\udc80"}) == digest({"b": "\udc80", "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})
