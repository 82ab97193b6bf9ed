"""Log lines that become events all at once are those that would have become events one by one."""

from hypothesis import given
from hypothesis import strategies as st

from app.http.sse import EVENTS, Frame
from app.schemas.logs import frames_on_the_wire, line_on_the_wire
from app.storage.logs import LogLines


@given(st.lists(st.text(st.characters(exclude_characters="\n", codec=None)), min_size=1), st.integers(1, 3))
def test_frames_of_a_block_are_those_of_its_lines(texts: list[str], step: int) -> None:
    lines = LogLines(attempt=2, rank=1, at="2026-01-01T00:00:00.000Z", first=7, step=step, lost=0, texts=texts)

    one_by_one = [EVENTS.frame(Frame(f"2:{line.n}", line_on_the_wire(line))) for line in lines]

    assert frames_on_the_wire(lines) == "".join(one_by_one)
