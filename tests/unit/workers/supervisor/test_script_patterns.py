"""The patterns by which a script's metrics are found in its lines."""

import time

import pytest

from app.patterns.script_metrics import InvalidPattern, metric_patterns


def test_only_options_with_the_prefix_are_patterns():
    patterns = metric_patterns({"metric.eval/loss": r"loss=(\d+)", "rate": "("})

    assert patterns.keys() == {"eval/loss"}
    assert patterns["eval/loss"].search("loss=3 of the Größe").group(1) == "3"


@pytest.mark.parametrize(
    ("option", "text", "said"),
    [
        ("metric.", r"(\d)", "name the metric after metric., as in metric.loss"),
        ("metric.loss", r"loss=(\d", "missing .*: use a regular expression in RE2's syntax"),
        ("metric.loss", r"(?<=loss)(\d)", "without lookarounds"),
        ("metric.loss", r"loss=\d+", "has 0 groups and needs one"),
        ("metric.loss", r"(loss)=(\d+)", r"has 2 groups .* say \(\?:…\)"),
        ("metric.loss", "(" + "a" * 500, "at most 500 characters, this one has 501"),
        ("metric.loss", r"((a{1000}){1000}){1000}", "RE2's syntax"),
    ],
)
def test_invalid_pattern_is_named_with_a_remedy(option, text, said):
    with pytest.raises(InvalidPattern, match=said) as refused:
        metric_patterns({option: text})
    assert refused.value.name == option


def test_too_many_patterns_are_refused():
    with pytest.raises(InvalidPattern, match=r"65 patterns .* at most 64"):
        metric_patterns({f"metric.m{number}": r"(\d)" for number in range(65)})


def test_no_line_takes_long_whatever_the_pattern():
    pattern = metric_patterns({"metric.loss": "(?:a+)+(b)"})["loss"]
    began = time.process_time()

    assert pattern.search("a" * 16_000 + "c") is None

    assert time.process_time() - began < 5, "a backtracking search would not end in a lifetime"
