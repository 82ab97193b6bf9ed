"""What `auto` means for each number of records."""

import pytest

from app.compat.openai.fine_tuning.auto import batch_of, epochs_of, split_of


@pytest.mark.parametrize(
    ("records", "epochs"),
    [(1, 25), (11, 25), (12, 25), (13, 24), (50, 6), (99, 4), (100, 3), (9_999, 3), (10_000, 2), (30_000, 1)],
)
def test_few_records_are_seen_more_often_and_many_less_often(records: int, epochs: int) -> None:
    assert epochs_of(records) == epochs


@pytest.mark.parametrize(
    ("records", "devices", "batch"),
    [
        *((1, 1, 1), (999, 1, 1), (1_000, 1, 2), (3_999, 1, 4), (4_000, 1, 8), (16_000, 1, 32), (10**9, 1, 32)),
        *((100, 4, 4), (16_000, 3, 30), (16_000, 64, 64)),
    ],
)
def test_batch_is_a_five_hundredth_of_the_records_and_a_power_of_two(records: int, devices: int, batch: int) -> None:
    assert batch_of(records, devices) == batch


@pytest.mark.parametrize(
    ("batch", "devices", "split"), [(1, 1, (1, 1)), (8, 1, (8, 1)), (32, 1, (8, 4)), (32, 4, (8, 1)), (13, 1, (1, 13))]
)
def test_batch_is_loaded_in_the_largest_parts_that_fit(batch: int, devices: int, split: tuple[int, int]) -> None:
    assert split_of(batch, devices) == split
    assert split[0] * split[1] * devices == batch
