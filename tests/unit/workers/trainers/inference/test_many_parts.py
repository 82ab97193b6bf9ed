"""A joined matrix may have more parts than a process may have open files."""

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from workers.trainers.inference.inputs import Shard
from workers.trainers.inference.rows import Answer, OutputRow
from workers.trainers.inference.writers.matrices import NumpyMatrix
from workers.trainers.inference.writers.writer import VectorForm

PARTS = 40


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Numbers that are free below the limit are taken first, so the limit lies above the highest one in use.
    used = [int(path.name) for path in Path("/proc/self/fd").iterdir()]
    highest = max(used)
    taken = [os.open("/dev/null", os.O_RDONLY) for _ in range(highest - len(used) + 2)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + PARTS // 4, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    for descriptor in taken:
        os.close(descriptor)


@pytest.mark.usefixtures("few_descriptors")
def test_parts_are_joined_one_after_the_other(tmp_path: Path) -> None:
    writer = NumpyMatrix(VectorForm("float32", 2))
    shards = [Shard(number, number, 1) for number in range(PARTS)]
    for shard in shards:
        vector = np.full(2, shard.number, np.float32)
        writer.write(tmp_path, shard, [OutputRow(shard.number, {}, answer=Answer(vector=vector))])

    writer.join(tmp_path, shards)

    assert np.load(tmp_path / "embeddings.npy")[:, 0].tolist() == list(range(PARTS))
    assert np.load(tmp_path / "index.npy").tolist() == list(range(PARTS))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["embeddings.npy", "index.npy"]
