"""Lines out of bytes: numbered, bounded in length, bounded in rate."""

import pytest

from workers.supervisor.recording.log_lines import (
    BURST_BYTES,
    BYTES_PER_SECOND,
    CUT_MARK,
    LAST_LINES_KEPT,
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


def test_dropped_lines_are_counted_and_the_last_of_them_kept():
    numbering = LogNumbering(1, Clock())
    flood = b"".join(b"%08d%s\n" % (i, b"x" * 1015) for i in range(40_000))

    lines = numbering.feed(0, flood) + numbering.flush(0)

    passed = BURST_BYTES // 1024
    notice, last = lines[passed], lines[passed + 1 :]
    assert notice.text == f"[trainyard] {40_000 - passed - LAST_LINES_KEPT} lines dropped: more than 4 MiB per second"
    assert [int(line.text[:8]) for line in last] == list(range(40_000 - LAST_LINES_KEPT, 40_000))
    assert [line.number for line in lines] == list(range(1, len(lines) + 1))


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_last_drawing_of_a_progress_bar_is_what_is_kept(end):
    splitter = LineSplitter()

    lines = [line for percent in range(101) for line in splitter.feed(b"\r%3d%% " % percent + b"#" * 300)]

    assert lines + splitter.feed(end) == ["100% " + "#" * 300]


@pytest.mark.parametrize(
    "pieces", [[b"50%\r", b"100%"], [b"x" * 20_000 + b"\r", b"100%"], [b"x" * 20_000, b"\r100%\r"]]
)
def test_redraw_replaces_what_was_drawn_before(pieces):
    splitter = LineSplitter()
    for piece in pieces:
        splitter.feed(piece)

    assert splitter.flush() == ["100%"]


def test_lines_of_several_nodes_have_interleaved_numbers_and_global_ranks():
    first, second = LogNumbering(2, node_rank=0, nodes=2), LogNumbering(2, node_rank=1, nodes=2)

    said = [*first.feed(1, b"a\nb\n"), *second.feed(0, b"c\n"), *second.feed(1, b"d\n")]

    assert [(line.number, line.rank, line.text) for line in said] == [
        (1, 1, "a"),
        (3, 1, "b"),
        (2, 2, "c"),
        (4, 3, "d"),
    ]
