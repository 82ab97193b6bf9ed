"""The server name of real client hellos, however they arrive, and of malformed ones."""

import ssl
import struct

import pytest

from workers.egress.client_hello import NotTls, server_name


def hello(name: str | None) -> bytes:
    """What OpenSSL sends first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    connection = context.wrap_bio(incoming, outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        connection.do_handshake()
    return outgoing.read()


def in_records(message: bytes, size: int) -> bytes:
    parts = [message[at : at + size] for at in range(0, len(message), size)]
    return b"".join(b"\x16\x03\x01" + struct.pack("!H", len(part)) + part for part in parts)


def with_extension(data: bytes, kind: int, content: bytes) -> bytes:
    """The same client hello with one more extension at its end."""
    message = data[5:]
    body = message[4:]
    at = 34 + 1 + body[34]
    at += 2 + struct.unpack_from("!H", body, at)[0]
    at += 1 + body[at]
    more = struct.pack("!HH", kind, len(content)) + content
    length = struct.unpack_from("!H", body, at)[0] + len(more)
    body = body[:at] + struct.pack("!H", length) + body[at + 2 :] + more
    return in_records(message[:1] + len(body).to_bytes(3, "big") + body, 1 << 14)


@pytest.mark.parametrize("name", ["example.org", "a.b-c.example.org", "xn--bcher-kva.example"])
def test_name_is_found(name):
    assert server_name(hello(name)) == name
    assert server_name(hello(name) + b"more") == name


def test_hello_without_a_name_has_an_empty_one():
    assert server_name(hello(None)) == ""
    assert server_name(hello("192.0.2.1")) == ""


def test_every_beginning_asks_for_more():
    data = hello("example.org")

    assert {server_name(data[:size]) for size in range(len(data))} == {None}


@pytest.mark.parametrize("size", [1, 3, 4, 5, 100])
def test_hello_may_span_records(size):
    assert server_name(in_records(hello("example.org")[5:], size)) == "example.org"


def test_encrypted_hello_is_refused():
    with pytest.raises(NotTls, match="encrypted"):
        server_name(with_extension(hello("public.example.org"), 0xFE0D, b"\0" * 20))


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        b"SSH-2.0-x\r\n",
        b"\x15\x03\x01\x00\x02\x02\x28",
        b"\x16\x03\x01\x00\x00",
        b"\x16\x03\x01\xff\xff",
        b"\x16\x03\x01\x00\x04\x02\x00\x00\x00",  # a server hello
        b"\x16\x03\x01\x00\x04\x01\xff\xff\xff",
        b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03",
        b"\x16\x03\x01\x00\x04\x01\x00\x00\x01\x17\x03\x03\x00\x01x",
    ],
)
def test_other_beginnings_are_refused(data):
    with pytest.raises(NotTls):
        server_name(data)


def test_hello_whose_lengths_lie_is_refused_or_has_no_other_name():
    data = bytearray(hello("example.org"))
    found: set[bool | None] = set()
    for at in range(9, len(data)):
        changed = data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]
        try:
            found.add(server_name(bytes(changed)) == "example.org")
        except NotTls:
            found.add(None)

    assert None in found
    assert True in found  # most bytes are random, keys or ciphers
