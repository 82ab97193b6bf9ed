"""Batches of requests, and the lines of their files."""

import json
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from sqlalchemy.orm import Session

from app.domain.ids import new_id
from app.domain.openai_paths import CHAT_COMPLETIONS
from app.models import Batch
from app.models.base import utc_now

CHAT = CHAT_COMPLETIONS
HOUR_SECONDS = 3600


def make_batch(session: Session, **changes: Any) -> Batch:
    """One that is validating, unless the changes say otherwise."""
    created_at = changes.pop("created_at", None) or utc_now()
    values: dict[str, Any] = {
        "id": new_id("batch"),
        "project": "default",
        "created_by": "x",
        "submits_as": "x",
        "input_file_id": new_id("file"),
        "endpoint": CHAT,
        "window_seconds": 24 * HOUR_SECONDS,
        "created_at": created_at,
        "updated_at": created_at,
        "expires_at": created_at + timedelta(hours=24),
        **changes,
    }
    batch = Batch(**values)
    session.add(batch)
    session.flush()
    return batch


def request_line(custom_id: str, *, url: str = CHAT, model: str = "tiny", **body: Any) -> dict[str, Any]:
    """A request of a batch; a chat asks something unless its body says what."""
    messages = {"messages": [{"role": "user", "content": f"def {custom_id}(x):"}]} if url == CHAT else {}
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": {"model": model, **messages, **body}}


def lines_of(requests: Iterable[Any]) -> bytes:
    return "".join(json.dumps(each) + "\n" for each in requests).encode()
