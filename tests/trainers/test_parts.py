"""Parts of a checkpoint from three ranks on two nodes, whose disks are two directories."""

import json
from pathlib import Path

import pytest

from tests.trainers.forked import rank_environment, start_rank
from tests.trainers.supervision import free_port, wait_for_all

pytestmark = pytest.mark.long


def ranks(tmp_path: Path, failing: str | None = None) -> list[str]:
    """What each of them said; the last one's node has a disk of its own."""
    port, started = free_port(), []
    logs = [tmp_path / f"{rank}.log" for rank in range(3)]
    for rank, local, disk in ((0, 0, "first"), (1, 1, "first"), (2, 0, "second")):
        environment = rank_environment(rank, 3, port, LOCAL_RANK=str(local))
        arguments = ["tests.scripts.gathers_files", str(tmp_path / disk), json.dumps(failing)]
        started.append(start_rank(arguments, environment=environment, cwd=tmp_path, log=logs[rank]))
    assert wait_for_all(started, 120) == [0, 0, 0], [log.read_text() for log in logs]
    return [log.read_text().splitlines()[-1] for log in logs]


def sizes(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in directory.iterdir()} if directory.exists() else {}


def test_files_of_other_nodes_come_to_the_first_and_do_not_stay(tmp_path):
    assert ranks(tmp_path) == ["done"] * 3

    assert sizes(tmp_path / "first") == {f"{rank}-{size}": size for rank in range(3) for size in (0, 2500)}
    assert (tmp_path / "first" / "2-2500").read_bytes() == b"\3" * 2500
    assert sizes(tmp_path / "second") == {}


@pytest.mark.parametrize("failing", ["0", "2"])
def test_what_keeps_one_from_writing_is_known_to_all_and_nothing_is_sent(tmp_path, failing):
    assert ranks(tmp_path, failing) == ["OSError 28"] * 3

    assert "2-2500" not in sizes(tmp_path / "first")


def test_write_error_where_parts_arrive_is_reported_only_there(tmp_path):
    (tmp_path / "first" / "2-2500").mkdir(parents=True)  # cannot be written

    assert ranks(tmp_path) == ["IsADirectoryError 21", "done", "done"]
