"""Forms with one file, whose content goes to the storage as it arrives: never whole in memory, or on a disk of ours."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from io import RawIOBase
from typing import Any, cast

from flask import g, request
from marshmallow import Schema
from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.sansio.multipart import Data, Epilogue, Event, Field, File, MultipartDecoder, NeedData

from app.domain.errors import InvalidRequest, TooLarge
from app.http.context import backend, holder
from app.http.errors import BadShape, UnsupportedMediaType
from app.http.request_body import check_content, validated
from app.services.files.incoming import Incoming, StoredContent

MEDIA_TYPE = "multipart/form-data"
_CHUNK_BYTES = 256 * 1024
# Of all that is not the file: fields, the headers of parts, and boundaries.
_OVERHEAD_BYTES = 1 << 20
_LONGEST_FIELD = 4096
_MOST_PARTS = 100
_DELIMITER_END = 4  # bytes behind a delimiter that say what follows: `--`, or a line break
_CONTENT = "openai_content"  # of the request's form, in its context


class MalformedForm(InvalidRequest):
    code = "MALFORMED_FORM"


@dataclass(frozen=True)
class FormContent:
    filename: str
    stored: StoredContent


class FormWithFile:
    """Reads a form: fields by ``schema``, and the part ``name`` into what ``receive`` makes for the request.

    ``most_bytes``: of the file. The document in place of the file has its name, size and hash, so that a form that is
    sent again is recognized.
    """

    def __init__(
        self, schema: type[Schema], name: str, *, receive: Callable[[], Incoming], most_bytes: Callable[[], int]
    ) -> None:
        self._schema, self._name = schema(), name
        self._receive, self._most_bytes = receive, most_bytes

    def read(self, *, optional: bool, max_nesting: int) -> dict[str, Any]:
        del optional  # it has a file
        limit = self._most_bytes()
        if (request.content_length or 0) > limit + _OVERHEAD_BYTES:
            raise TooLarge(f"the content is larger than {limit} bytes, the most that is taken here")
        request.max_content_length = limit + _OVERHEAD_BYTES
        with backend().bodies.held(holder()):
            document = _Form(self._name, self._receive).read()
        check_content(document, max_nesting=max_nesting)
        return document

    def load(self, document: dict[str, Any]) -> Any:  # noqa: ANN401 – as validated
        return validated(self._schema, document)


def content() -> FormContent:
    """The stored file of this request's form, until the request ends."""
    found: FormContent = g.get(_CONTENT)
    return found


def close(_error: BaseException | None) -> None:
    """At the end of a request: removes content that nothing names."""
    g.pop(f"{_CONTENT}_open", ExitStack()).close()


class _Form:
    """One form, part by part."""

    def __init__(self, name: str, receive: Callable[[], Incoming]) -> None:
        self._name, self._receive = name, receive
        self._found: dict[str, Any] = {}
        self._incoming: Incoming | None = None
        self._field, self._value, self._filename = "", bytearray(), ""

    def read(self) -> dict[str, Any]:
        for event in _events():
            if isinstance(event, Field | File):
                self._begin(event)
            elif isinstance(event, memoryview):
                self._add(event)
            elif isinstance(event, Data):
                self._add(event.data)
                if not event.more_data:
                    self._end()
        return self._found

    def _begin(self, part: Field | File) -> None:
        self._field, self._value = part.name or "", bytearray()
        if self._field in self._found:
            raise BadShape([(self._field[:64], "must be given once")])
        if isinstance(part, File) != (self._field == self._name):
            named = "must be a file, with a name" if self._field == self._name else "is not a file of this form"
            raise BadShape([(self._field[:64], named)])
        if isinstance(part, File):
            self._filename, self._incoming = part.filename, _opened(self._receive())

    def _add(self, data: bytes | memoryview) -> None:
        if self._incoming is not None:
            self._incoming.write(data)
            return
        self._value += data
        if len(self._value) > _LONGEST_FIELD:
            raise BadShape([(self._field[:64], f"is longer than {_LONGEST_FIELD} bytes")])

    def _end(self) -> None:
        if self._incoming is None:
            self._found[self._field] = _text(self._field, self._value)
            return
        stored = self._incoming.finish()
        self._incoming = None
        g.setdefault(_CONTENT, FormContent(self._filename, stored))
        self._found[self._field] = {
            "filename": self._filename,
            "size_bytes": stored.size_bytes,
            "sha256": stored.sha256,
        }


def _opened(incoming: Incoming) -> Incoming:
    """It stays open until the request ends."""
    stack: ExitStack = g.setdefault(f"{_CONTENT}_open", ExitStack())
    return stack.enter_context(incoming)


def _text(field: str, value: bytearray) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise BadShape([(field[:64], "is not UTF-8")]) from error


def _events() -> Iterator[Event | memoryview]:
    """What the form consists of; data of a part also as it lies in the buffer, which the next event may overwrite."""
    boundary = _boundary()
    decoder = MultipartDecoder(boundary, 2 * _OVERHEAD_BYTES, max_parts=_MOST_PARTS)
    pieces = _Pieces(b"--" + boundary)
    is_in_data = False
    try:
        for piece in pieces:
            rest = piece
            if is_in_data and piece is not None and not decoder.buffer:  # it holds nothing back
                data, rest = pieces.divided(piece)
                yield data
            decoder.receive_data(cast("bytes | None", rest))  # copies it
            while not isinstance(event := decoder.next_event(), NeedData):
                if isinstance(event, Epilogue):
                    return
                is_in_data = isinstance(event, Data) and event.more_data
                yield event
    except RequestEntityTooLarge as error:
        raise TooLarge(f"the form has more than {_MOST_PARTS} parts, or too much beside its file") from error
    except ValueError as error:
        raise MalformedForm("the form is not complete, or not a form: send multipart/form-data as it is") from error


class _Pieces:
    """The body in pieces of one buffer, each of which overwrites the one before, and None at its end.

    No piece ends just behind a delimiter: the decoder would take a part of the line break before it for data.
    """

    def __init__(self, delimiter: bytes) -> None:
        self._delimiter = delimiter
        self._buffer = bytearray(_CHUNK_BYTES)
        self._held = 0  # always so long that a delimiter which begins before it is seen whole
        # It begins with a delimiter and CRLF: then a CR is before each further one (RFC 2046, section 5.1.1). In a form
        # that continues with LF alone, further delimiters may pass for content; without its end it is refused.
        self._is_usual: bool | None = None

    def __iter__(self) -> Iterator[memoryview | None]:
        view = memoryview(self._buffer)
        for count in _received(lambda: view[self._held :]):
            if self._is_usual is None:
                self._is_usual = self._buffer.startswith(self._delimiter + b"\r\n")
            self._held += count
            end = self._cut(self._held - len(self._delimiter))
            if end > 0:
                yield view[:end]
                self._held -= end
                view[: self._held] = bytes(view[end : end + self._held])
        yield view[: self._held]
        yield None

    def divided(self, piece: memoryview) -> tuple[memoryview, memoryview]:
        """What of the piece is data for certain, and the rest, in which a delimiter may be or begin.

        The decoder copies all that it gets several times; data goes past it.
        """
        size = len(piece)
        # Texts seldom have a CR, and one byte is found many times as fast as a delimiter.
        may_have = not self._is_usual or self._buffer.find(b"\r", 0, size) >= 0
        if may_have and self._buffer.find(self._delimiter, 0, size) >= 0:
            return piece[:0], piece
        last = max(0, size - len(self._delimiter) - len(b"\r\n"))
        ends = [at for at in (self._buffer.find(end, last, size) for end in (b"\r", b"\n")) if at >= 0]
        end = min(ends, default=size)
        return piece[:end], piece[end:]

    def _cut(self, end: int) -> int:
        """Where content may be cut: there, or before a delimiter that would be cut or be just before."""
        if end <= 0:
            return 0
        length = len(self._delimiter)
        first = max(0, end - length - _DELIMITER_END)
        at = self._buffer.rfind(self._delimiter, first, end + length - 1)
        return end if at < 0 else max(0, at - len(b"\r\n"))


def _boundary() -> bytes:
    if request.mimetype != MEDIA_TYPE:
        raise UnsupportedMediaType(f"send a form with the header Content-Type: {MEDIA_TYPE}; boundary=…")
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise UnsupportedMediaType("send the body without a Content-Encoding")
    boundary = request.mimetype_params.get("boundary", "")
    if not (0 < len(boundary) <= 200 and boundary.isascii()):
        raise MalformedForm("the header Content-Type names no boundary")
    return boundary.encode()


def _received(free: Callable[[], memoryview]) -> Iterator[int]:
    """Reads the body into what is free of a buffer, piece by piece, until its end; yields the size of each."""
    total = 0
    stream = cast("RawIOBase", request.stream)  # limited by Werkzeug, since there is a greatest length
    # Of our server's connections; bodies have to arrive within its time, unless it is extended.
    extend_time = getattr(request.environ.get("gunicorn.socket"), "extend_body_time", lambda _size: None)
    while count := stream.readinto(free()):
        total += count
        extend_time(count)
        yield count
    if request.content_length is None and total >= (request.max_content_length or 0):
        raise TooLarge("the body is too large")  # Werkzeug silently truncates a chunked body at the limit
    if total < (request.content_length or 0):
        raise MalformedForm("the body is shorter than its Content-Length; send the complete body")
