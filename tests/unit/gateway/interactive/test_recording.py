"""Recordings of sessions: valid asciicast in pieces, whatever the output and the storage do."""

import asyncio
import json

import pytest

from app.gateway.interactive.recording import PIECE_SECONDS, Recording, RecordingEnded
from app.services.interactive.recordings import MOST_BYTES, PIECE_BYTES


class Shelf:
    """A storage of pieces; ``fails``: it takes none."""

    def __init__(self, *, fails: bool = False) -> None:
        self.pieces: dict[int, bytes] = {}
        self._fails = fails

    async def store(self, number: int, data: bytes) -> None:
        if self._fails:
            raise OSError("no space left on device")
        self.pieces[number] = data

    @property
    def lines(self) -> list[object]:
        whole = b"".join(self.pieces[number] for number in sorted(self.pieces))
        return [json.loads(line) for line in whole.splitlines()]


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_character_that_arrives_in_parts_is_whole_and_broken_ones_are_replaced() -> None:
    shelf, clock = Shelf(), Clock()

    async def scenario() -> None:
        made = Recording(shelf.store, {"command": ["echo", "a b"], "rows": 30, "columns": 90}, clock)
        await made.add(1, "ü".encode()[:1])
        clock.now += 0.5
        await made.add(1, "ü".encode()[1:] + b"\xff")
        await made.add(1, b"\xc3")
        await made.finish()

    asyncio.run(scenario())
    header, *events = shelf.lines
    assert isinstance(header, dict)
    assert (header["width"], header["height"], header["command"]) == (90, 30, "echo 'a b'")
    assert events == [[0.5, "o", "ü\ufffd"], [0.5, "o", "\ufffd"]]


def test_channels_that_alternate_do_not_break_each_others_characters() -> None:
    shelf = Shelf()

    async def scenario() -> None:
        made = Recording(shelf.store, {}, Clock())
        await made.add(1, "é".encode()[:1])
        await made.add(2, b"error")
        await made.add(1, "é".encode()[1:])
        await made.finish()

    asyncio.run(scenario())
    assert [each[2] for each in shelf.lines[1:]] == ["error", "é"]  # type: ignore[index]  # events are lists


def test_pieces_are_stored_when_they_are_large_or_old() -> None:
    shelf, clock = Shelf(), Clock()

    async def scenario() -> list[int]:
        made = Recording(shelf.store, {}, clock)
        await made.add(1, b"x" * 100)
        counts = [len(shelf.pieces)]
        await made.add(1, b"x" * PIECE_BYTES)
        counts.append(len(shelf.pieces))
        await made.add(1, b"y")
        clock.now += PIECE_SECONDS
        await made.tick()
        counts.append(len(shelf.pieces))
        await made.finish()
        return [*counts, len(shelf.pieces)]

    assert asyncio.run(scenario()) == [0, 1, 2, 2]


def test_what_cannot_be_stored_ends_the_session() -> None:
    async def scenario() -> None:
        made = Recording(Shelf(fails=True).store, {}, Clock())
        await made.add(1, b"x" * PIECE_BYTES)

    with pytest.raises(RecordingEnded, match="could not be stored, and the project records sessions"):
        asyncio.run(scenario())


def test_a_recording_that_is_full_ends_the_session() -> None:
    async def scenario() -> None:
        made = Recording(_nowhere, {}, Clock())
        for _ in range(2 * MOST_BYTES // PIECE_BYTES):
            await made.add(1, b"x" * PIECE_BYTES)

    with pytest.raises(RecordingEnded, match="has reached 256 MiB"):
        asyncio.run(scenario())


async def _nowhere(number: int, data: bytes) -> None:
    del number, data
