"""Forms with a file: its content arrives whole, wherever the body is cut into chunks."""

import io
import re
from collections.abc import Iterator
from itertools import chain, repeat

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


class Pieces:
    """A body that arrives in pieces of these sizes, and what is left at once."""

    def __init__(self, body: bytes, sizes: list[int]) -> None:
        self._body, self._sizes = io.BytesIO(body), chain(sizes, repeat(len(body)))

    def read(self, size: int) -> bytes:
        return self._body.read(min(size, next(self._sizes)))


def parts_of(body: bytes, sizes: list[int]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    environment = {
        "CONTENT_TYPE": f"multipart/form-data; boundary={BOUNDARY.decode()}",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": Pieces(body, sizes),
    }
    with _APP.test_request_context("/", method="POST", environ_overrides=environment):
        request.max_content_length = 1 << 30
        name = ""
        for event in multipart._events():
            if isinstance(event, Field | File):
                name = event.name
                found[name] = b""
            elif isinstance(event, Data | memoryview):
                found[name] += event.data if isinstance(event, Data) else event
    return found


@given(
    content=st.lists(st.sampled_from(PIECES), max_size=40).map(b"".join),
    sizes=st.lists(st.integers(1, 90), max_size=60),
)
def test_content_is_the_same_however_it_is_cut(content: bytes, sizes: list[int]) -> None:
    if _DELIMITER.search(content):
        return
    body = HEAD % BOUNDARY + content + TAIL % (BOUNDARY, BOUNDARY)
    assert parts_of(body, sizes) == {"file": content, "purpose": b"fine-tune"}


def ends(body: bytes) -> Iterator[list[int]]:
    """Sizes of pieces that end within or just behind the last delimiter, at one place and at two."""
    delimiter = b"\r\n--" + BOUNDARY
    begin = body.rindex(delimiter) - 2
    end = begin + len(delimiter) + 8
    for first in range(begin, end):
        yield [first]
        yield from ([first, second - first] for second in range(first + 1, end))


def test_pieces_that_end_at_a_delimiter_add_nothing_to_the_content() -> None:
    content = b"x" * 1000
    body = HEAD % BOUNDARY + content + b"\r\n--" + BOUNDARY + b"--\r\n"

    assert [sizes for sizes in ends(body) if parts_of(body, sizes)["file"] != content] == []


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_content_may_arrive_in_small_pieces(size: int) -> None:
    content = b"".join(PIECES[:7]) * 3
    body = HEAD % BOUNDARY + content + TAIL % (BOUNDARY, BOUNDARY)

    assert parts_of(body, [size] * len(body)) == {"file": content, "purpose": b"fine-tune"}


@pytest.mark.parametrize("size", [3, 40, 1000])
def test_a_form_whose_lines_end_without_a_carriage_return_is_read_whatever_its_pieces(size: int) -> None:
    content = b'{"a": "--abcdef12345"}\n' * 20
    body = (HEAD % BOUNDARY + content + TAIL % (BOUNDARY, BOUNDARY)).replace(b"\r\n", b"\n")

    assert parts_of(body, [size] * len(body)) == {"file": content, "purpose": b"fine-tune"}
