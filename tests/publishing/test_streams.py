"""Files that are sent to a place while they are read."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.publishing.conftest import JOB, make_order
from workers.publishing.copying import copy
from workers.publishing.failures import NotPublished
from workers.publishing.streams import FileStreams


def nothing(count: int) -> None:
    pass


def test_what_is_streamed_arrives_without_a_copy_on_the_disk(spot, tmp_path):
    large = bytes(range(256)) * (36 << 10)  # 9 MiB: several parts of an object
    model = make_order(tmp_path / "model", {"rank-0.log": large, "rank-1.log": b""}, job_id=JOB)
    streams = FileStreams(tmp_path / "source", {"rank-0.log": lambda: [large[:1000], large[1000:]], "rank-1.log": list})
    streams.start()

    try:
        for _ in range(2):  # what an earlier try has left there is not asked for
            order = replace(model, source=tmp_path / "source", is_streamed=True)
            assert copy(spot.place, order, nothing) == ""
    finally:
        streams.stop()

    assert spot.model() == {"rank-0.log": large, "rank-1.log": b""}


def test_stream_that_ends_early_is_tried_again(spot, tmp_path):
    def broken() -> Iterator[bytes]:
        yield b"beg"
        raise OSError("the storage is gone")

    model = make_order(tmp_path / "model", {"rank-0.log": b"begun"}, job_id=JOB)
    streams = FileStreams(tmp_path / "source", {"rank-0.log": broken})
    streams.start()

    try:
        with pytest.raises(NotPublished) as failed:
            copy(spot.place, replace(model, source=tmp_path / "source", is_streamed=True), nothing)
    finally:
        streams.stop()

    assert failed.value.transient
    assert not spot.marker()["complete"]
