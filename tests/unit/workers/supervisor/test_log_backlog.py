"""Lines that wait for the storage: bounded, and what the bound cuts is counted in its place."""

from hypothesis import given
from hypothesis import strategies as st

from app.storage.log_blocks import LogBlock
from tests.builders.log_blocks import block
from workers.supervisor.recording.log_backlog import BLOCK_BYTES, LogBacklog

SIZE = BLOCK_BYTES + 101
EVERYTHING = 1 << 30


def one(number: int, rank: int = 0) -> LogBlock:
    return block(number, "x" * 100, rank=rank)


def filled(backlog: LogBacklog, blocks: list[LogBlock]) -> LogBacklog:
    for each in blocks:
        backlog.add(each)
    return backlog


def shown(blocks: list[LogBlock]) -> list[tuple[int, int, str]]:
    return [(each.first, each.rank, text[:30]) for each in blocks for text in each.lines()]


def test_blocks_come_back_in_their_order() -> None:
    backlog = filled(LogBacklog(), [one(1), one(2, 1), one(3)])

    assert [each.first for each in backlog.take(2 * SIZE)] == [1, 2]
    assert [each.first for each in backlog.take(EVERYTHING)] == [3]
    assert backlog.take(EVERYTHING) == []
    assert (backlog.bytes, backlog.lines) == (0, 0)


def test_full_backlog_has_room_again_when_blocks_are_taken() -> None:
    backlog = LogBacklog(full_bytes=3 * SIZE)
    was_full = []
    for number in (1, 2, 3):
        backlog.add(one(number))
        was_full.append(backlog.is_full)
    backlog.take(1)

    assert [*was_full, backlog.is_full] == [False, False, True, False]


def test_oldest_lines_are_cut_and_a_notice_with_their_number_stands_in_their_place() -> None:
    backlog = filled(LogBacklog(most_bytes=3 * SIZE), [one(number, rank=number % 2) for number in range(1, 8)])

    assert shown(backlog.take(EVERYTHING)) == [
        (3, 1, "[trainyard] 2 lines dropped he"),
        (4, 0, "[trainyard] 2 lines dropped he"),
        (5, 1, "x" * 30),
        (6, 0, "x" * 30),
        (7, 1, "x" * 30),
    ]


def test_notice_of_a_cut_block_counts_its_lines_and_has_the_number_of_the_last() -> None:
    backlog = filled(LogBacklog(most_bytes=SIZE), [block(1, "a", "b", "c", step=2), one(7)])

    assert shown(backlog.take(EVERYTHING)) == [(5, 0, "[trainyard] 3 lines dropped he"), (7, 0, "x" * 30)]


def test_batch_that_can_not_be_stored_is_counted_whole_also_its_notices() -> None:
    backlog = filled(LogBacklog(most_bytes=2 * SIZE), [one(number) for number in range(1, 6)])
    backlog.drop(backlog.take(1))

    assert shown(backlog.take(EVERYTHING)) == [(4, 0, "[trainyard] 4 lines dropped he"), (5, 0, "x" * 30)]


def test_lines_that_wait_and_those_that_were_dropped_are_unstored() -> None:
    backlog = filled(LogBacklog(most_bytes=2 * SIZE), [one(number) for number in range(1, 6)])

    assert backlog.unstored == 5


@given(st.lists(st.tuples(st.sampled_from(["add", "take", "drop"]), st.integers(0, 2), st.integers(1, 9))))
def test_every_line_is_taken_or_counted_by_a_notice(steps: list[tuple[str, int, int]]) -> None:
    backlog, number, stored = LogBacklog(most_bytes=4 * SIZE), 0, []
    for what, rank, count in steps:
        if what == "add":
            backlog.add(block(number + 1, *["x" * 50] * count, rank=rank))
            number += count
        elif what == "take":
            stored += backlog.take(count * SIZE)
        else:
            backlog.drop(backlog.take(count * SIZE))
    stored += backlog.take(EVERYTHING)

    assert sum(each.stands_for for each in stored) == number
    assert [each.last for each in stored] == sorted({each.last for each in stored})
