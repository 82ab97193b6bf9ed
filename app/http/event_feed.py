"""A stream of events that are numbered within their subject, such as a job, and that ends with it."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from flask import Response
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.http.sse import EventFrame, Feed, last_event_id, stream
from app.schemas.results.events import EventSchema

_EVENT = EventSchema()
_NUMBER = re.compile(r"([0-9]{1,9})")
# Whether the subject has ended, and its events after this number. The end must be read first: it commits together with
# the last event.
Read = Callable[[Session, int], tuple[bool, Sequence[Any]]]


def stream_of_events(db: Database, read: Read) -> Response:
    """Every event after the one that the client received last, until the subject has ended.

    Raises InvalidRequest for a Last-Event-ID that is no number, LimitExceeded when too many streams are open.
    """
    last = last_event_id(_NUMBER)
    return stream(_feed(db, read, int(last[1]) if last else 0))


def _feed(db: Database, read: Read, seq: int) -> Feed:
    while True:
        with db.read() as session:
            has_ended, events = read(session, seq)
        for event in events:
            seq = event.seq
            yield EventFrame(str(seq), _EVENT.dump(event))
        if not events:
            if has_ended:
                return
            yield None
