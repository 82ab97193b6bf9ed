"""How requests share padded batches: a function of the requests alone."""

import pytest
import torch

from workers.trainers.inference.engine.batches import answered, by_length, padded
from workers.trainers.inference.engine.interface import Interrupted


def test_requests_share_batches_by_length_under_a_budget():
    assert list(by_length([3, 9, 3, 4, 2, 30], 12)) == [[5], [1], [3, 0, 2], [4]]


def test_no_request_makes_no_batch():
    assert list(by_length([], 12)) == []


def test_padding_is_on_the_right_and_masked():
    ids, mask = padded([[5, 6, 7], [8]], 9, torch.device("cpu"))

    assert ids.tolist() == [[5, 6, 7], [8, 9, 9]]
    assert mask.tolist() == [[1, 1, 1], [1, 0, 0]]


def test_answers_come_in_the_order_of_the_requests():
    rows = [[1], [1, 2, 3], [1, 2]]

    assert answered(rows, 3, lambda group: [len(rows[index]) for index in group], lambda: False) == [1, 3, 2]


def test_an_interrupted_call_computes_no_further_batch():
    computed: list[int] = []

    def note(group):
        computed.extend(group)
        return group

    with pytest.raises(Interrupted):
        answered([[1, 2], [3]], 2, note, lambda: bool(computed))

    assert computed == [0]
