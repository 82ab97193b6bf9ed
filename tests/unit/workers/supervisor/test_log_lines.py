"""Lines out of bytes: numbered, bounded in length, bounded in rate."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.storage.log_blocks import LogBlock
from config.redaction import Redaction
from workers.supervisor.recording.flood_gate import BYTES_PER_SECOND, PAUSE_BYTES, FloodGate
from workers.supervisor.recording.log_lines import CUT_MARK, MAX_LINE_BYTES, LineSplitter
from workers.supervisor.recording.log_numbering import LAST_LINES_KEPT, LogNumbering

BURST_BYTES = 16 << 20
SECRET = "hunter2-hunter2"
# What a rank may write: ordinary text, and whatever needs care where it is divided, joined, cut or masked.
PIECES = st.sampled_from(
    [
        b"loss 0.5\n",
        b"\n",
        b"no end",
        b"\r",
        b"50%\r",
        b"\r\n",
        b"nul\0",
        "größe\u2028\x85".encode(),
        b"\xff\xe2\x82",
        b"x" * (MAX_LINE_BYTES - 5),
        b"y" * (2 * MAX_LINE_BYTES),
        SECRET.encode(),
        SECRET.encode()[:9],
        SECRET.encode()[9:],
        b"Authorization: Bearer abc\n",
        b"Authorization:\n***",
        b"https://a:b@c/?x=1&token=abc\n",
    ]
)


def said(*blocks: LogBlock | None) -> list[tuple[int, int, str]]:
    """(number, rank, text) of each line."""
    return [
        (block.first + index * block.step, block.rank, text)
        for block in blocks
        if block is not None
        for index, text in enumerate(block.lines())
    ]


def texts(*blocks: LogBlock | None) -> list[str]:
    return [text for _, _, text in said(*blocks)]


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


@given(st.lists(PIECES, max_size=12), st.lists(st.integers(0, 100_000), max_size=6))
def test_lines_are_the_same_however_their_bytes_are_divided_and_read(pieces: list[bytes], cuts: list[int]) -> None:
    data = b"".join(pieces)
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    parts = [data[start:end] for start, end in pairwise(places)]
    redaction = Redaction([SECRET])
    numbering, careful = LogNumbering(1, redaction=redaction), LineSplitter()

    found = texts(*(numbering.feed(0, part) for part in parts), numbering.flush(0))

    lines = [line for piece in (data[at : at + 1] for at in range(len(data))) for line in careful.feed(piece)]
    assert found == [shown(redaction, line) for line in lines + careful.flush()]


def shown(redaction: Redaction, line: str) -> str:
    if line.endswith(CUT_MARK):
        return redaction.redact_truncated(line.removesuffix(CUT_MARK)) + CUT_MARK
    return redaction(line)


def test_ordinary_lines_are_taken_at_once_and_odd_ones_are_not():
    splitter = LineSplitter()

    assert splitter.feed_ordinary(b"a\nb") is not None
    assert splitter.feed_ordinary(b"c\r\n") is None
    assert splitter.feed_ordinary(b"x" * MAX_LINE_BYTES + b"\n") is None
    assert splitter.feed_ordinary(b"\nc\0\xff\n") == "b\nc��\n"


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_burst_passes_and_a_flood_does_not():
    gate = FloodGate(Clock(), burst_bytes=BURST_BYTES)

    passed = sum(gate.admit(1024) for _ in range(BURST_BYTES // 1024 * 3))

    assert passed == BURST_BYTES // 1024
    assert gate.take_dropped() == passed * 2


def test_gate_opens_again_with_time():
    clock = Clock()
    gate = FloodGate(clock, burst_bytes=BURST_BYTES)
    while gate.admit(1024):
        pass

    clock.now = PAUSE_BYTES / BYTES_PER_SECOND
    too_early = gate.admit_all(1024)
    clock.now += 1024 / BYTES_PER_SECOND

    assert (too_early, gate.admit_all(1024)) == (False, True)


def test_numbers_run_over_all_ranks():
    numbering = LogNumbering(2)

    blocks = [numbering.feed(0, b"a\n"), numbering.feed(1, b"b\nbb\n"), numbering.feed(0, b"c\n")]

    assert said(*blocks) == [(1, 0, "a"), (2, 1, "b"), (3, 1, "bb"), (4, 0, "c")]


def test_dropped_lines_are_counted_and_the_last_of_them_kept():
    numbering = LogNumbering(1, Clock(), burst_bytes=BURST_BYTES)
    flood = b"".join(b"%08d%s\n" % (i, b"x" * 1015) for i in range(40_000))

    blocks = [numbering.feed(0, flood), numbering.flush(0)]

    passed, lines = BURST_BYTES // 1024, texts(*blocks)
    dropped = 40_000 - passed - LAST_LINES_KEPT
    assert [int(line[:8]) for line in lines[:passed]] == list(range(passed))
    assert lines[passed] == f"[trainyard] {dropped} lines dropped here: more than 1 GiB, and 4 MiB per second since"
    assert [int(line[:8]) for line in lines[passed + 1 :]] == list(range(40_000 - LAST_LINES_KEPT, 40_000))
    assert [number for number, _, _ in said(*blocks)] == list(range(1, len(lines) + 1))


def test_notice_of_dropped_lines_stands_where_they_are_missing():
    clock = Clock()
    numbering = LogNumbering(1, clock, burst_bytes=BURST_BYTES)
    numbering.feed(0, (b"x" * 1023 + b"\n") * (BURST_BYTES // 1024))

    dropped = numbering.feed(0, b"one\ntwo\n")
    clock.now = 2.0
    after = numbering.feed(0, b"three\nfour\n")

    assert dropped is None
    assert texts(after)[0].startswith("[trainyard] 2 lines dropped here")
    assert texts(after)[1:] == ["three", "four"]


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

    blocks = [first.feed(1, b"a\nb\n"), second.feed(0, b"c\n"), second.feed(1, b"d\n")]

    assert said(*blocks) == [(1, 1, "a"), (3, 1, "b"), (2, 2, "c"), (4, 3, "d")]
