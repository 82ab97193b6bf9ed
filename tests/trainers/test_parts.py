"""Parts of a checkpoint from three ranks on two nodes, whose disks are two directories."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.trainers.supervision import ROOT, free_port, wait_for_all

pytestmark = pytest.mark.long

# A rank writes two files, one of them longer than what is sent at once; says how it went.
RANK = """
import json, os, sys
from pathlib import Path
import torch.distributed as dist
from workers.trainers import checkpoint_shards

checkpoint_shards._CHUNK_BYTES = 1000
directory, failing = Path(sys.argv[1]), json.loads(sys.argv[2])
rank = os.environ["RANK"]
dist.init_process_group("gloo")
problem = OSError(28, "No space left on device") if rank == failing else None
files = [directory / f"{rank}-{size}" for size in (0, 2500)]
for path in files if problem is None else ():
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes([int(rank) + 1]) * int(path.name[2:]))
try:
    checkpoint_shards.gather_files(directory, files, problem, None)
    print("done")
except OSError as error:
    print(type(error).__name__, error.errno)
dist.barrier()
dist.destroy_process_group()
"""


def ranks(tmp_path: Path, failing: str | None = None) -> list[str]:
    """What each of them said; the last one's node has a disk of its own."""
    port, started = str(free_port()), []
    logs = [tmp_path / f"{rank}.log" for rank in range(3)]
    for rank, local, disk in ((0, 0, "first"), (1, 1, "first"), (2, 0, "second")):
        environment: dict[str, Any] = {
            **os.environ,
            "RANK": str(rank),
            "LOCAL_RANK": str(local),
            "WORLD_SIZE": "3",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            "PYTHONPATH": str(ROOT),
            "PYTHONSAFEPATH": "1",
        }
        command = [sys.executable, "-c", RANK, str(tmp_path / disk), json.dumps(failing)]
        with logs[rank].open("wb") as log, logs[rank].with_suffix(".err").open("wb") as errors:
            started.append(subprocess.Popen(command, env=environment, stdout=log, stderr=errors))
    assert wait_for_all(started, 120) == [0, 0, 0], [path.read_text() for path in tmp_path.glob("*.err")]
    return [log.read_text().strip() for log in logs]


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


def test_a_disk_that_is_full_where_parts_arrive_is_told_there_alone(tmp_path):
    (tmp_path / "first" / "2-2500").mkdir(parents=True)  # cannot be written

    assert ranks(tmp_path) == ["IsADirectoryError 21", "done", "done"]
