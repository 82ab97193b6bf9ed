"""The client's calls about batches: files of requests to models, answered by jobs."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from trainyard import records
from trainyard._client.calls import Calls, without_unset
from trainyard._client.files import Files
from trainyard._client.http import quote
from trainyard._client.plain_calls import PlainCalls
from trainyard._client.waiting import poll

CHAT = "/v1/chat/completions"
_PAGE = 100


class Batches:
    """Batches of a project. Answers are OpenAI's batch objects."""

    def __init__(self, calls: Calls, files: Files) -> None:
        self._plain = PlainCalls(calls)
        self._files = files

    def create(
        self,
        input_file_id: str,
        endpoint: str = CHAT,
        *,
        window: str = "24h",
        metadata: Mapping[str, str] | None = None,
        output_expires_seconds: int | None = None,
        parts: Mapping[str, Any] | None = None,
    ) -> records.RequestBatch:
        """Have the requests of an uploaded file with purpose ``batch`` answered: see ``files.put``.

        ``window``: after so many hours what is not answered has expired. ``output_expires_seconds`` (one hour to 30
        days) deletes the files with the answers. ``parts``: ``resource_config``, ``scheduling_config`` and ``output``
        of the jobs that answer.
        """
        seconds = output_expires_seconds
        expires = {"anchor": "created_at", "seconds": seconds} if seconds is not None else None
        body = without_unset(
            input_file_id=input_file_id,
            endpoint=endpoint,
            completion_window=window,
            metadata=metadata,
            output_expires_after=expires,
            trainyard=parts,
        )
        return cast("records.RequestBatch", self._plain.send("POST", "/v1/batches", body=body))

    def get(self, batch_id: str) -> records.RequestBatch:
        return cast("records.RequestBatch", self._plain.send("GET", _batch(batch_id)))

    def list(self) -> Iterator[records.RequestBatch]:
        """Newest first, page after page."""
        return cast("Iterator[records.RequestBatch]", self._plain.items("/v1/batches", page_size=_PAGE))

    def cancel(self, batch_id: str) -> records.RequestBatch:
        """What is answered until then stays. Raises Conflict once it has ended."""
        return cast("records.RequestBatch", self._plain.send("POST", f"{_batch(batch_id)}/cancel", body={}))

    def wait(
        self, batch_id: str, *, timeout_seconds: float = float("inf"), poll_seconds: float = 1.0
    ) -> records.RequestBatch:
        """The batch once it has ended. Raises TimeoutError."""
        return poll(
            lambda _most_seconds: self.get(batch_id),
            lambda batch: batch["status"] in records.BATCH_TERMINAL,
            f"batch {batch_id} has not ended",
            timeout_seconds=timeout_seconds,
            poll_seconds=poll_seconds,
        )

    def answers(self, batch_id: str) -> Iterator[dict[str, Any]]:
        """The lines of a batch that has ended: first answers, then errors, each in the order of their requests."""
        batch = self.get(batch_id)
        for file_id in (batch["output_file_id"], batch["error_file_id"]):
            yield from _lines(self._files.content(file_id)) if file_id else ()

    def download(self, batch_id: str, folder: Path) -> dict[str, Path]:
        """Save the files of a batch that has ended as ``output.jsonl`` and ``errors.jsonl``, those that it has."""
        batch = self.get(batch_id)
        named = {"output": batch["output_file_id"], "errors": batch["error_file_id"]}
        found = {name: file_id for name, file_id in named.items() if file_id}
        if found:
            folder.mkdir(parents=True, exist_ok=True)
        return {name: self._files.download(file_id, folder / f"{name}.jsonl") for name, file_id in found.items()}


def _batch(batch_id: str) -> str:
    return f"/v1/batches/{quote(batch_id)}"


def _lines(pieces: Iterator[bytes]) -> Iterator[dict[str, Any]]:
    begun = b""
    for piece in pieces:
        *whole, begun = (begun + piece).split(b"\n")
        yield from map(json.loads, whole)
    if begun:
        yield json.loads(begun)
