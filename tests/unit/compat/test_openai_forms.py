"""Forms with a file: its content arrives whole, wherever the body is cut into chunks."""

import re
from typing import Any

import pytest
from flask import Flask, request
from hypothesis import given
from hypothesis import strategies as st
from werkzeug.sansio.multipart import Data, Field, File

from app.compat.openai import multipart

BOUNDARY = b"abcdef123456"
HEAD = b'--%b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
TAIL = b'\r\n--%b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nfine-tune\r\n--%b--\r\n'
# What resembles a delimiter, or a part of one.
PIECES = [
    b"\r",
    b"\n",
    b"\r\n",
    b"-",
    b"--",
    b"a",
    b"z" * 20,
    b"--" + BOUNDARY,
    b"\r\n--abcdef12345",
    b"\r\n--abcdef1x",
]
_DELIMITER = re.compile(rb"(^|\r\n|\r|\n)--" + BOUNDARY)
_APP = Flask("forms")


def parts_of(body: bytes, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(multipart, "_CHUNK_BYTES", chunk_bytes)
    found: dict[str, bytes] = {}
    media_type = f"multipart/form-data; boundary={BOUNDARY.decode()}"
    with _APP.test_request_context("/", method="POST", data=body, content_type=media_type):
        request.max_content_length = 1 << 30
        name = ""
        for event in multipart._events():
            if isinstance(event, Field | File):
                name = event.name
                found[name] = b""
            elif isinstance(event, Data):
                found[name] += event.data
    return found


@given(content=st.lists(st.sampled_from(PIECES), max_size=40).map(b"".join), chunk_bytes=st.integers(16, 90))
def test_content_is_the_same_however_it_is_cut(content: bytes, chunk_bytes: int) -> None:
    if _DELIMITER.search(content):
        return
    body = HEAD % BOUNDARY + content + TAIL % (BOUNDARY, BOUNDARY)
    with pytest.MonkeyPatch.context() as monkeypatch:
        assert parts_of(body, chunk_bytes, monkeypatch) == {"file": content, "purpose": b"fine-tune"}


def test_a_chunk_that_ends_within_the_end_of_a_delimiter_adds_nothing_to_the_content(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    content = b"x" * 1000
    end = b"\r\n--" + BOUNDARY
    body = HEAD % BOUNDARY + content + end + b"--\r\n"
    behind = body.rindex(end) + len(end)
    for cut in range(behind - 4, behind + 4):
        assert parts_of(body, cut, monkeypatch)["file"] == content
