"""Downloads: interruption, resumption and integrity checks."""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.scripted_server import Answer, Handler, ScriptedServer, drop, failure, running
from trainyard._client import calls as _calls
from trainyard.client import BrokenContent, Client, NotFound, RetryPolicy, Unreachable

CONTENT = bytes(range(256)) * 100
TAG = f'"{hashlib.sha256(CONTENT).hexdigest()}"'


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    monkeypatch.setattr(_calls, "FIRST_PAUSE_SECONDS", 0.01)
    with running() as server:
        yield server


def serving(content: bytes = CONTENT, tag: str = TAG, *, at_most: int = 10**9) -> Answer:
    """As our server does: ranges under If-Range; cut off after some bytes."""

    def answer(handler: Handler) -> None:
        asked = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range") or "")
        start = int(asked[1]) if asked and handler.headers.get("If-Range") == tag else 0
        headers = {"ETag": tag, "Content-Length": str(len(content) - start)}
        handler.reply(206 if start else 200, content[start:][:at_most], "application/octet-stream", **headers)

    return answer


def ranges(server: ScriptedServer) -> list[str | None]:
    return [headers.get("Range") for *_, headers, _ in server.seen]


def test_broken_download_resumes_where_it_broke(server: ScriptedServer, tmp_path: Path) -> None:
    server.script(serving(at_most=10_000), drop, serving(at_most=10_000), serving())

    saved = Client(server.url).download("job-1", "m", tmp_path / "m")

    assert saved.read_bytes() == CONTENT
    assert ranges(server) == [None, "bytes=10000-", "bytes=10000-", "bytes=20000-"]
    assert list(tmp_path.iterdir()) == [saved]


def test_a_later_call_resumes_too(server: ScriptedServer, tmp_path: Path) -> None:
    server.script(serving(at_most=10_000), drop)
    with pytest.raises(Unreachable):
        Client(server.url, patience=RetryPolicy(tries=2)).download("job-1", "m", tmp_path / "m")
    server.script(serving())

    saved = Client(server.url).download("job-1", "m", tmp_path / "m")

    assert saved.read_bytes() == CONTENT
    assert ranges(server)[-1] == "bytes=10000-"


def test_a_file_that_changed_meanwhile_is_got_anew(server: ScriptedServer, tmp_path: Path) -> None:
    newer = b"newer" * 1000
    tag = f'"{hashlib.sha256(newer).hexdigest()}"'
    server.script(serving(at_most=10_000), serving(newer, tag))

    assert Client(server.url).download("job-1", "m", tmp_path / "m").read_bytes() == newer


def test_local_bytes_beyond_the_end_of_the_file_are_discarded(server: ScriptedServer, tmp_path: Path) -> None:
    (tmp_path / ".m.trainyard-part").write_bytes(CONTENT + b"more")
    (tmp_path / ".m.trainyard-etag").write_text(TAG)
    server.script(failure(416, {"code": "RANGE_NOT_SATISFIABLE", "message": "beyond"}), serving())

    assert Client(server.url).download("job-1", "m", tmp_path / "m").read_bytes() == CONTENT


def test_content_that_is_not_what_was_recorded_is_refused(server: ScriptedServer, tmp_path: Path) -> None:
    server.script(serving(b"x" * 100))

    with pytest.raises(BrokenContent, match="SHA-256"):
        Client(server.url).download("job-1", "m", tmp_path / "m")

    assert list(tmp_path.iterdir()) == []


def test_a_refusal_leaves_nothing(server: ScriptedServer, tmp_path: Path) -> None:
    server.script(failure(404, {"code": "NOT_FOUND", "message": "no artifact"}))

    with pytest.raises(NotFound):
        Client(server.url).download("job-1", "m", tmp_path / "m")

    assert list(tmp_path.iterdir()) == []
