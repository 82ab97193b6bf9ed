"""Lines out of bytes: numbered, bounded in length, bounded in rate."""

import pytest

from workers.log_lines import (
    BURST_BYTES,
    BYTES_PER_SECOND,
    CUT_MARK,
    MAX_LINE_BYTES,
    FloodGate,
    LineSplitter,
    LogNumbering,
)


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        ([b"a\nb\n"], ["a", "b"]),
        ([b"a", b"b\nc", b"\n"], ["ab", "c"]),
        ([b"\n\n"], ["", ""]),
        ([b"windows\r\n"], ["windows"]),
        ([b"10%\r50%\r100%\n"], ["100%"]),
        ([b"\xff\xfe\n"], ["��"]),
        ([b"nul\0\n"], ["nul�"]),
        (["größe\n".encode()[:4], "größe\n".encode()[4:]], ["größe"]),
    ],
)
def test_bytes_become_lines(pieces, lines):
    splitter = LineSplitter()

    assert [line for piece in pieces for line in splitter.feed(piece)] == lines


def test_last_line_without_end_comes_with_the_flush():
    splitter = LineSplitter()
    splitter.feed(b"a\nrest")

    assert splitter.flush() == ["rest"]
    assert splitter.flush() == []


def test_long_line_is_cut_and_the_next_one_is_whole():
    splitter = LineSplitter()

    lines = [line for _ in range(10) for line in splitter.feed(b"x" * 10_000)] + splitter.feed(b"\nnext\n")

    assert lines == ["x" * MAX_LINE_BYTES + CUT_MARK, "next"]


def test_line_of_exactly_the_limit_is_not_cut():
    assert LineSplitter().feed(b"x" * MAX_LINE_BYTES + b"\n") == ["x" * MAX_LINE_BYTES]


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_burst_passes_and_a_flood_does_not():
    gate = FloodGate(Clock())

    passed = sum(gate.admit(1024) for _ in range(BURST_BYTES // 1024 * 3))

    assert passed == BURST_BYTES // 1024
    assert gate.take_dropped() == passed * 2


def test_gate_opens_again_with_time():
    clock = Clock()
    gate = FloodGate(clock)
    while gate.admit(1024):
        pass

    clock.now = BURST_BYTES / BYTES_PER_SECOND

    assert gate.admit(1024)


def test_numbers_run_over_all_ranks():
    numbering = LogNumbering(2)

    lines = numbering.feed(0, b"a\n") + numbering.feed(1, b"b\n") + numbering.feed(0, b"c\n")

    assert [(line.number, line.rank, line.text) for line in lines] == [(1, 0, "a"), (2, 1, "b"), (3, 0, "c")]


def test_dropped_lines_are_told():
    numbering = LogNumbering(1, Clock())

    lines = numbering.feed(0, (b"x" * 1023 + b"\n") * 10_000) + numbering.flush(0)

    assert len(lines) == BURST_BYTES // 1024 + 1
    assert lines[-1].text == f"[trainyard] {10_000 - BURST_BYTES // 1024} lines dropped: more than 1 MiB per second"
    assert [line.number for line in lines] == list(range(1, len(lines) + 1))
