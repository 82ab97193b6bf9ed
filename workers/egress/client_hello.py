"""The server name in the first message of a TLS client, see RFC 8446 sections 4.1.2 and 5.1, and RFC 6066 section 3."""

import struct
from collections.abc import Iterator

_HANDSHAKE, _CLIENT_HELLO = 22, 1
_SERVER_NAME, _ENCRYPTED = 0, 0xFE0D  # extensions; the second is encrypted_client_hello
_RECORD_HEADER, _MESSAGE_HEADER = 5, 4
_LONGEST_RECORD = 1 << 14
MOST_BYTES = 1 << 16


class NotTls(ValueError):
    """These bytes do not begin a TLS connection that names its server."""


def server_name(data: bytes) -> str | None:
    """The name in the client hello that ``data`` begins with, empty if it has none; None when more bytes are needed.

    Raises NotTls.
    """
    message = _message(data)
    if message is None:
        return None
    try:
        return _name_in(message)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise NotTls("the client hello is malformed") from error


def _message(data: bytes) -> bytes | None:
    """The body of the first handshake message, which may span several records."""
    message, rest = b"", data
    while True:
        if len(message) >= _MESSAGE_HEADER:
            if message[0] != _CLIENT_HELLO:
                raise NotTls("it does not begin with a client hello")
            length = int.from_bytes(message[1:_MESSAGE_HEADER], "big")
            if length > MOST_BYTES:
                raise NotTls("the client hello is too long")
            if len(message) >= _MESSAGE_HEADER + length:
                return message[_MESSAGE_HEADER : _MESSAGE_HEADER + length]
        if rest and rest[0] != _HANDSHAKE:
            raise NotTls("it does not begin with a TLS handshake")
        if len(rest) < _RECORD_HEADER:
            return None
        length = int.from_bytes(rest[3:_RECORD_HEADER], "big")
        if not 0 < length <= _LONGEST_RECORD:
            raise NotTls("the record has no valid length")
        if len(rest) < _RECORD_HEADER + length:
            return None
        message += rest[_RECORD_HEADER : _RECORD_HEADER + length]
        rest = rest[_RECORD_HEADER + length :]


def _name_in(hello: bytes) -> str:
    at = 2 + 32  # version and random
    at += 1 + hello[at]  # session id
    at += 2 + int.from_bytes(hello[at : at + 2], "big")  # cipher suites
    at += 1 + hello[at]  # compression methods
    name = ""
    for kind, content in _extensions(hello[at:]):
        if kind == _ENCRYPTED:
            raise NotTls("the client hello is encrypted, so that its server can't be checked")
        if kind == _SERVER_NAME:
            # A list of names by type, of which there is one: 0, a DNS name.
            length = struct.unpack_from("!H", content, 3)[0]
            if content[2] != 0 or len(content) != 5 + length:
                raise NotTls("the server name is malformed")
            name = content[5:].decode("ascii")
    return name.lower().rstrip(".")


def _extensions(data: bytes) -> Iterator[tuple[int, bytes]]:
    at, end = 2, 2 + (struct.unpack_from("!H", data)[0] if data else 0)
    while at < end:
        kind, length = struct.unpack_from("!HH", data, at)
        content = data[at + 4 : at + 4 + length]
        if len(content) != length:
            raise NotTls("an extension is cut off")
        yield kind, content
        at += 4 + length
