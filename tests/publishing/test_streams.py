"""Files that are sent to a place while they are read."""

import errno
import socket
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


def test_what_is_written_after_the_file_was_measured_is_not_sent(spot, tmp_path):
    text = b"as it was measured"
    model = make_order(tmp_path / "model", {"rank-0.log": text, "rank-1.log": b""}, job_id=JOB)
    later = [text, b"GET / HTTP/1.1\r\n", bytes(9 << 20)]
    streams = FileStreams(tmp_path / "source", {"rank-0.log": lambda: later, "rank-1.log": lambda: later})
    streams.start()

    try:
        copy(spot.place, replace(model, source=tmp_path / "source", is_streamed=True), nothing)
    finally:
        streams.stop()

    assert spot.model() == {"rank-0.log": text, "rank-1.log": b""}
    assert spot.marker()["complete"]


def test_source_that_has_no_descriptor_left_for_a_moment_answers_later(spot, tmp_path, monkeypatch):
    model = make_order(tmp_path / "model", {"rank-0.log": b"text"}, job_id=JOB)
    streams = FileStreams(tmp_path / "source", {"rank-0.log": lambda: [b"text"]})
    accept, failures = socket.socket.accept, [OSError(errno.EMFILE, "Too many open files")]

    def failing_once(listener: socket.socket) -> object:
        if failures:
            raise failures.pop()
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", failing_once)
    streams.start()

    try:
        copy(spot.place, replace(model, source=tmp_path / "source", is_streamed=True), nothing)
    finally:
        streams.stop()

    assert failures == []
    assert spot.model() == {"rank-0.log": b"text"}


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
