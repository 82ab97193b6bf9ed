"""Records of inference jobs: numbers over all sources, counts, shards."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders.run_specs import make_run_spec
from tests.unit.workers.trainers.inference.runs import write_lines
from workers.trainers.failures import DataInvalid, InvalidConfig
from workers.trainers.inference.inputs import Inputs, Shard, planned


def everything(_number: int) -> bool:
    return True


@pytest.fixture
def inputs(tmp_path: Path) -> Callable[..., Inputs]:
    """Two files of six records each, with these changes to their sources."""
    paths = [
        write_lines(tmp_path / f"{name}.jsonl", ({"text": f"{name}{i}", "n": i} for i in range(6))) for name in "ab"
    ]

    def make(*sources: dict[str, Any]) -> Inputs:
        data = {"sources": list(sources) or [{}, {}], "seed": 1}
        files = tuple(map(str, paths))
        return Inputs(make_run_spec(data_config=data, data_paths=files, inference={"task": {"type": "embed"}}))

    return make


def test_records_are_numbered_over_all_sources_whatever_their_split(inputs: Callable[..., Inputs]) -> None:
    rows = list(inputs({"split": "validation[4:]"}, {"split": "train[:2]"}).rows())

    assert [(row.index, row.where, row.values["text"]) for row in rows] == [
        (0, "a.jsonl line 5", "a4"),
        (1, "a.jsonl line 6", "a5"),
        (2, "b.jsonl line 1", "b0"),
        (3, "b.jsonl line 2", "b1"),
    ]


@pytest.mark.parametrize(
    "source",
    [
        {},
        {"split": "train[:50%]"},
        {"split": "train[4:100]"},
        {"filters": [{"column": "n", "op": ">=", "value": 2}]},
        {"sampling": {"fraction": 0.5}},
        {"split": "train[1:]", "sampling": {"count": 3}},
    ],
)
def test_count_is_the_number_of_rows(inputs: Callable[..., Inputs], source: dict[str, Any]) -> None:
    found = inputs(source, {})

    assert found.count() == sum(1 for _ in found.rows())


def test_source_without_records_is_refused(inputs: Callable[..., Inputs]) -> None:
    with pytest.raises(DataInvalid, match=r"no records in a.jsonl that data_config.sources.0.filters leave over"):
        inputs({"filters": [{"column": "n", "op": ">", "value": 9}]}, {}).count()


def test_shards_cut_the_records_by_their_numbers() -> None:
    assert planned(5, 2) == [Shard(0, 0, 2), Shard(1, 2, 2), Shard(2, 4, 1)]
    assert planned(4, 4) == [Shard(0, 0, 4)]


def test_only_chosen_shards_are_given(inputs: Callable[..., Inputs]) -> None:
    found = list(inputs().shards(planned(12, 4), lambda number: number != 1))

    assert [(shard.number, [row.index for row in rows]) for shard, rows in found] == [
        (0, [0, 1, 2, 3]),
        (2, [8, 9, 10, 11]),
    ]


def test_records_that_have_gone_meanwhile_are_an_error(inputs: Callable[..., Inputs]) -> None:
    with pytest.raises(DataInvalid, match="only 0 of the 4 records from number 12 on were found"):
        list(inputs().shards(planned(16, 4), everything))


def test_job_without_sources_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"data_config.sources is empty"):
        Inputs(make_run_spec())
