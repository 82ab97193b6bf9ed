"""Held-out shares and weighted mixtures: exact in number, fair to every record, the same for the same seed."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.trainers.data.mixing import held_out, joined, mixed
from workers.trainers.failures import InvalidConfig

SEEDS = st.integers(0, 2**32 - 1)


@given(counts=st.lists(st.integers(0, 50), min_size=1, max_size=4), share=st.floats(0, 0.99), seed=SEEDS)
def test_share_is_held_out_of_all_records_together(counts, share, seed):
    total, wanted = sum(counts), max(1, round(sum(counts) * share)) if share else 0
    if wanted and wanted >= total:
        with pytest.raises(InvalidConfig, match="leaves nothing to train on"):
            held_out(counts, share, seed)
        return

    kept, held = held_out(counts, share, seed)

    assert sum(map(len, held)) == wanted
    for count, one, other in zip(counts, kept, held, strict=True):
        assert sorted([*one, *other]) == list(range(count))
    again = held_out(counts, share, seed)
    assert all(np.array_equal(one, other) for one, other in zip(held, again[1], strict=True))


def test_seed_draws_what_is_held_out():
    drawn = [held_out([1000], 0.1, seed)[1][0].tolist() for seed in (1, 2)]

    assert drawn[0] != drawn[1]


SOURCES = st.lists(st.tuples(st.integers(1, 60), st.floats(0.05, 20)), min_size=1, max_size=4)


@given(sources=SOURCES, seed=SEEDS)
def test_weights_are_shares_of_an_epoch_in_which_the_scarcest_source_comes_once(sources, seed):
    counts, weights = [count for count, _ in sources], [weight for _, weight in sources]
    shares = [weight / sum(weights) for weight in weights]
    total = max(count / share for count, share in zip(counts, shares, strict=True))

    parts = mixed([np.arange(count) for count in counts], weights, seed)

    assert [len(part) for part in parts] == [round(share * total) for share in shares]
    for part, count in zip(parts, counts, strict=True):
        times = Counter(part.tolist())
        # No record is repeated before each was used once.
        assert set(times) == set(range(count))
        assert max(times.values()) - min(times.values()) <= 1
    assert all(
        np.array_equal(a, b) for a, b in zip(parts, mixed([np.arange(c) for c in counts], weights, seed), strict=True)
    )


def test_example_of_the_documentation():
    """1000 records with weight 3 beside 500 with weight 1: N = max(1000 / 0.75, 500 / 0.25) = 2000."""
    parts = mixed([np.arange(1000), np.arange(500)], [3, 1], seed=0)

    assert [len(part) for part in parts] == [1500, 500]


def test_seed_draws_what_comes_again():
    drawn = [Counter(mixed([np.arange(100), np.arange(150)], [1, 1], seed)[0].tolist()) for seed in (1, 2)]

    assert drawn[0] != drawn[1]


def test_indices_are_joined_in_the_order_of_the_sources():
    assert joined([np.array([0, 2]), np.array([], int), np.array([1])], [3, 5, 2]).tolist() == [0, 2, 9]
