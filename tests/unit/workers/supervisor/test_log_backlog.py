"""Lines that wait for the storage: bounded, and what the bound cuts is counted in its place."""

from datetime import UTC, datetime

from workers.supervisor.recording.log_backlog import LINE_BYTES, LogBacklog
from workers.supervisor.recording.log_lines import LogLine

AT = datetime(2030, 1, 1, tzinfo=UTC)


def line(number: int, rank: int = 0, text: str = "x" * 100) -> LogLine:
    return LogLine(number=number, rank=rank, at=AT, text=text)


def shown(lines: list[LogLine]) -> list[tuple[int, int, str]]:
    return [(each.number, each.rank, each.text[:30]) for each in lines]


def test_lines_come_back_in_their_order() -> None:
    backlog = LogBacklog()
    backlog.add([line(1), line(2, 1), line(3)])

    assert [each.number for each in backlog.take(2)] == [1, 2]
    assert [each.number for each in backlog.take(9)] == [3]
    assert backlog.take(9) == []


def test_full_backlog_has_room_again_when_lines_are_taken() -> None:
    backlog = LogBacklog(full_bytes=3 * (100 + LINE_BYTES))
    was_full = []
    for number in (1, 2, 3):
        backlog.add([line(number)])
        was_full.append(backlog.is_full)
    backlog.take(1)

    assert [*was_full, backlog.is_full] == [False, False, True, False]


def test_oldest_lines_are_cut_and_a_notice_with_their_number_stands_in_their_place() -> None:
    backlog = LogBacklog(most_bytes=3 * (100 + LINE_BYTES))
    backlog.add([line(number, rank=number % 2) for number in range(1, 8)])

    assert shown(backlog.take(9)) == [
        (3, 1, "[trainyard] 2 lines dropped he"),
        (4, 0, "[trainyard] 2 lines dropped he"),
        (5, 1, "x" * 30),
        (6, 0, "x" * 30),
        (7, 1, "x" * 30),
    ]


def test_batch_that_can_not_be_stored_is_counted_whole_also_its_notices() -> None:
    backlog = LogBacklog(most_bytes=2 * (100 + LINE_BYTES))
    backlog.add([line(number) for number in range(1, 6)])
    backlog.drop(backlog.take(1))

    assert shown(backlog.take(9)) == [(4, 0, "[trainyard] 4 lines dropped he"), (5, 0, "x" * 30)]


def test_lines_that_wait_and_those_that_were_dropped_are_unstored() -> None:
    backlog = LogBacklog(most_bytes=2 * (100 + LINE_BYTES))
    backlog.add([line(number) for number in range(1, 6)])

    assert backlog.unstored == 5
