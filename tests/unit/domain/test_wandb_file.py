"""The file for `wandb sync`, read by an independent reader of LevelDB's log format and of protobuf."""

import pytest

from app.domain.wandb_file import WandbFile, WandbRun
from tests.builders.wandb_reading import read_records, values_of

RUN = WandbRun(run_id="job-1", project="p", name="näme", config={"seed": 1, "lr": "1e-4"}, tags=["a=b"])


def test_records_are_numbered_and_have_what_was_written() -> None:
    file = WandbFile()
    data = file.begin(RUN) + file.step(0, {"loss": 0.5}) + file.step(300, {"loss": "NaN"})
    data += file.summary({"loss": 0.25}) + file.end(1, 60)

    records = list(read_records(data))

    assert [each[1] for each in records] == [[1], [2], [3], [4], [5], [6], [7]]
    assert [kind for each in records for kind in each if kind != 1] == [21, 17, 2, 2, 3, 18, 22]
    assert values_of(records[1][17][0], field=4) == {"seed": 1, "lr": "1e-4"}
    assert values_of(records[2][2][0]) == {"loss": 0.5, "_step": 0}
    assert values_of(records[3][2][0]) == {"loss": "NaN", "_step": 300}
    assert values_of(records[4][3][0]) == {"loss": 0.25}


@pytest.mark.parametrize("size", [0, 1, 32_700, 32_720, 32_727, 32_728, 32_729, 32_735, 40_000, 100_000])
def test_records_cross_blocks(size: int) -> None:
    """Also where no room is left for a part's head, which is then filled with zeros."""
    file = WandbFile()
    data = file.begin(RUN) + file.step(1, {"text": "x" * size}) + file.step(2, {"loss": 1.5})

    *_, long, last = read_records(data)

    assert values_of(long[2][0]) == {"text": "x" * size, "_step": 1}
    assert values_of(last[2][0]) == {"loss": 1.5, "_step": 2}


def test_every_length_near_the_end_of_a_block() -> None:
    for size in range(32_600, 32_780):
        file = WandbFile()
        data = file.begin(RUN) + file.step(1, {"text": "x" * size}) + file.step(2, {})
        assert len(list(read_records(data))) == 4
