"""Thinning by way of summaries shows what thinning all points shows: ends, minima and maxima."""

import math

from hypothesis import given
from hypothesis import strategies as st

from app.domain.downsampling import FAN_OUT, Span, merged, selected_steps, span_of, spans_of

VALUES = st.lists(st.floats(allow_nan=False), min_size=1, max_size=600)


def test_a_span_is_its_ends_and_its_extremes():
    assert span_of([(3, 5.0), (4, -1.0), (9, 7.0), (10, 7.0)]) == Span(3, 10, 4, -1.0, 9, 7.0)


@given(VALUES)
def test_merged_spans_are_the_span_of_all_their_points(values):
    points = list(enumerate(values))

    assert merged(list(spans_of(points, FAN_OUT))) == span_of(points)


@given(VALUES, st.integers(4, 60), st.integers(1, 40))
def test_ends_and_extremes_are_kept_and_no_more_than_asked_for(values, most, size):
    points = list(enumerate(values))

    kept = selected_steps(list(spans_of(points, size)), most)

    assert len(kept) <= most
    assert kept == sorted(set(kept))
    assert {0, len(values) - 1} <= set(kept)
    assert {min(values), max(values)} <= {values[step] for step in kept}


def test_every_bucket_shows_its_extremes():
    points = [(n, math.sin(n)) for n in range(1600)]

    kept = set(selected_steps(list(spans_of(points, 16)), 22))

    for bucket in range(10):
        part = points[bucket * 160 : (bucket + 1) * 160]
        assert {min(part, key=lambda p: p[1])[0], max(part, key=lambda p: p[1])[0]} <= kept
