"""What follows a page: which of its topics have changed, as a stream of events or as one answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from app.http.context import backend, caller
from app.http.sse import EventFrame, Feed
from app.services.operations.change_marks import ChangeMark, Topic, topics_of

# Clocks of the machines that write may differ by as much.
_MARGIN = timedelta(seconds=2)
_UNKNOWN = "-"
# A page asks for a part once in so many seconds; all pages together for so many parts a second.
_PACE_SECONDS, _MOST_PACE_SECONDS, _PARTS_A_SECOND = 1.0, 30.0, 8.0


@dataclass
class Followed:
    """The topics of a page, and what it has of them: marks, or nothing else than when it was made."""

    topics: Sequence[Topic]
    marks: list[str]
    made_at: datetime | None

    def step(self) -> list[str]:
        """The topics that have changed; from now on the page has the newest marks."""
        here = backend()
        found = here.marks.of(here.plane.db, here.plane.storage, caller(), self.topics)
        changed = [
            str(topic)
            for topic, mark, had in zip(self.topics, found, self.marks, strict=True)
            if (mark.text != had if had != _UNKNOWN else self._is_newer(mark))
        ]
        self.marks, self.made_at = [mark.text for mark in found], None
        return changed

    @property
    def id(self) -> str:
        return ".".join(self.marks)

    def _is_newer(self, mark: ChangeMark) -> bool:
        return self.made_at is not None and mark.at is not None and mark.at > self.made_at - _MARGIN


def followed(query: Mapping[str, Any], last_event_id: str = "") -> Followed:
    """Marks that do not fit the topics count as unknown. Raises InvalidRequest for what is no topic."""
    topics = topics_of(list(dict.fromkeys(query["topic"])))
    marks = (last_event_id or query["after"]).split(".")
    if len(marks) != len(topics):
        marks = [_UNKNOWN] * len(topics)
    made = query.get("made")
    made_at = datetime.fromtimestamp(made / 1000, UTC) if made is not None else None
    return Followed(topics=topics, marks=[mark or _UNKNOWN for mark in marks], made_at=made_at)


def changes(page: Followed) -> dict[str, Any]:
    """One answer, for pages without a stream."""
    return _told(page, page.step())


def feed(page: Followed) -> Feed:
    """Endless; the first event tells the page its marks."""
    yield "retry: 2000\n\n"
    yield _frame(page, page.step())
    while True:
        changed = page.step()
        yield _frame(page, changed) if changed else None


def _frame(page: Followed, changed: list[str]) -> EventFrame:
    return EventFrame(page.id, _told(page, changed))


def _told(page: Followed, changed: list[str]) -> dict[str, Any]:
    """``pace``: the seconds after which the page may ask again; more with many viewers of this process."""
    viewers = backend().viewers.in_use + backend().polls.count()
    return {
        "changed": changed,
        "id": page.id,
        "pace": min(_MOST_PACE_SECONDS, max(_PACE_SECONDS, viewers / _PARTS_A_SECOND)),
    }
