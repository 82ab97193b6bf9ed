"""What a source is for, and which of its rows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.spec.data.splits import BadSplit, Bound, Split, parse_split

PERCENTS = st.integers(1, 99)


@pytest.mark.parametrize(
    ("text", "name", "rows"),
    [
        (None, "train", range(10)),
        ("", "train", range(10)),
        ("train", "train", range(10)),
        ("val", "validation", range(10)),
        ("valid", "validation", range(10)),
        ("dev", "validation", range(10)),
        ("eval", "validation", range(10)),
        ("test", "test", range(10)),
        ("train[:80%]", "train", range(8)),
        ("train[80%:]", "train", range(8, 10)),
        ("validation[2:4]", "validation", range(2, 4)),
        ("test[:]", "test", range(10)),
        ("train[5:1000]", "train", range(5, 10)),
        ("train[20:]", "train", range(10, 10)),
        ("train[3:50%]", "train", range(3, 5)),
        ("train[0:1]", "train", range(1)),
        ("train[:100%]", "train", range(10)),
    ],
)
def test_splits_name_their_rows(text: str | None, name: str, rows: range) -> None:
    split = parse_split(text)

    assert (split.name, split.rows(10)) == (name, rows)


@pytest.mark.parametrize(
    "text",
    [
        "training",
        "TRAIN",
        " train",
        "train[]",
        "train[5]",
        "train[:5",
        "train[-5:]",
        "train[:5.5]",
        "train[:5 %]",
        "train[:101%]",
        "train[:0]",
        "train[:0%]",
        "train[100%:]",
        "train[5:5]",
        "train[60%:40%]",
        "train[1:2:3]",
        "train+test",
        "train[:٣]",
        "train[:" + "9" * 30 + "]",
        "train\n",
    ],
)
def test_other_texts_name_no_split(text: str) -> None:
    with pytest.raises(BadSplit):
        parse_split(text)


@given(PERCENTS, st.integers(0, 10**9))
def test_the_parts_of_a_split_neither_share_a_row_nor_lose_one(percent: int, total: int) -> None:
    first = Split(stop=Bound(percent, percent=True)).rows(total)
    second = Split(start=Bound(percent, percent=True)).rows(total)

    assert (first.start, first.stop, second.stop) == (0, second.start, total)
