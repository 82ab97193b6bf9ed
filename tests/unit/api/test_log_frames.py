"""Log lines that become events all at once are those that would have become events one by one."""

from hypothesis import given
from hypothesis import strategies as st

from app.http.sse import EVENTS, EventFrame
from app.schemas.results.logs import frames_on_the_wire, line_on_the_wire
from app.storage.logs import LogLines

TEXTS = st.lists(st.text(st.characters(exclude_characters="\n", codec=None)), min_size=1)


def lines_of(texts: list[str], *, step: int, before: tuple[int, ...] = ()) -> LogLines:
    at = "2026-01-01T00:00:00.000Z"
    return LogLines(attempt=2, rank=1, at=at, first=8, step=step, lost=0, texts=texts, before=before)


@given(TEXTS)
def test_frames_of_a_block_are_those_of_its_lines(texts: list[str]) -> None:
    lines = lines_of(texts, step=1)

    one_by_one = [EVENTS.frame(EventFrame(f"2:{line.n}", line_on_the_wire(line))) for line in lines]

    assert frames_on_the_wire(lines) == "".join(one_by_one)


@given(TEXTS)
def test_id_of_a_frame_names_a_line_of_each_node(texts: list[str]) -> None:
    lines = lines_of(texts, step=3, before=(4, 5, 300))

    one_by_one = [EVENTS.frame(EventFrame(f"2:4,{line.n},300", line_on_the_wire(line))) for line in lines]

    assert frames_on_the_wire(lines) == "".join(one_by_one)
