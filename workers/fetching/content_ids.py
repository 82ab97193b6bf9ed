"""IPFS content ids and blocks: content is accepted only if its digest matches the id.

Formats: CID and multihash (github.com/multiformats/cid), CAR version 1, DAG-PB and UnixFS (ipld.io/specs,
specs.ipfs.tech/unixfs).
"""

import base64
import binascii
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from workers.fetching.failures import FetchRefused, Trouble

RAW, DAG_PB = 0x55, 0x70
_DIGESTS = {0x12: "sha256", 0x13: "sha512"}
_BASE36, _BASE58 = (
    "0123456789abcdefghijklmnopqrstuvwxyz",
    "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz",
)
_MOST_BLOCK_BYTES = 8 << 20  # gateways and nodes exchange blocks of up to 2 MiB


class Malformed(ValueError):
    """Malformed bytes."""


@dataclass(frozen=True)
class ContentId:
    """``codec`` is the block's encoding; ``hashed`` is its expected multihash."""

    codec: int
    hashed: bytes

    def check(self, block: bytes) -> bytes:
        """The block, if its digest matches. Raises Malformed."""
        kind, at = varint(self.hashed, 0)
        length, at = varint(self.hashed, at)
        digest = self.hashed[at:]
        if len(digest) != length:
            raise Malformed("a multihash of another length than it says")
        if kind == 0:
            found = block
        elif kind in _DIGESTS:
            found = hashlib.new(_DIGESTS[kind], block, usedforsecurity=True).digest()[:length]
        else:
            raise Malformed(f"a multihash of kind 0x{kind:x}, which is not known here")
        if found != digest or length < (20 if kind else 0):
            raise Malformed("other bytes than its content id names")
        return block


def content_id(text: str) -> ContentId:
    """Parse the text form. Raises FetchRefused."""
    try:
        if text.startswith("Qm") and len(text) == 46:
            return _binary(_number(text, _BASE58), 0)[0]
        decoded = {
            "b": lambda rest: base64.b32decode(rest.upper() + "=" * (-len(rest) % 8)),
            "k": lambda rest: _number(rest, _BASE36),
            "z": lambda rest: _number(rest, _BASE58),
        }[text[:1]](text[1:])
        found, end = _binary(decoded, 0)
        if end != len(decoded):
            raise Malformed("more than a content id")
    except (Malformed, ValueError, KeyError, binascii.Error) as error:
        raise FetchRefused(f"{text[:80]} is no content id of IPFS") from error
    return found


def of_link(data: bytes) -> ContentId:
    """Parse the form used in links between blocks. Raises Malformed."""
    return _binary(data, 0)[0]


def _number(text: str, alphabet: str) -> bytes:
    value = 0
    for sign in text:
        value = value * len(alphabet) + alphabet.index(sign)
    zeros = len(text) - len(text.lstrip(alphabet[0]))
    return b"\0" * zeros + value.to_bytes((value.bit_length() + 7) // 8)


def _binary(data: bytes, at: int) -> tuple[ContentId, int]:
    """(content id, where it ends)."""
    if data[at : at + 2] == b"\x12\x20":  # version 0: a multihash alone
        codec, start = DAG_PB, at
    else:
        version, after = varint(data, at)
        if version != 1:
            raise Malformed("a content id of an unknown version")
        codec, start = varint(data, after)
    _, after = varint(data, start)
    length, after = varint(data, after)
    end = after + length
    if end > len(data) or length > 128:
        raise Malformed("a content id that is cut off")
    return ContentId(codec, data[start:end]), end


def varint(data: bytes, at: int) -> tuple[int, int]:
    """(number, where it ends). Raises Malformed."""
    value = 0
    for count, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value, at + count + 1
    raise Malformed("a number that is cut off")


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(number, value) of each field of a protobuf message. Raises Malformed."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        value, at = varint(data, at)
        if key & 7 == 2:
            if at + value > len(data):
                raise Malformed("a field that is cut off")
            yield key >> 3, data[at : at + value]
            at += value
        elif key & 7 == 0:
            yield key >> 3, value
        else:
            raise Malformed("a field of an unknown kind")


class Blocks:
    """The blocks of a CAR file, by multihash; each is verified when it is read."""

    def __init__(self, file: Path) -> None:
        """Raises Trouble for a file that is not CAR."""
        self._stream = file.open("rb")
        self._places: dict[bytes, tuple[int, int]] = {}
        try:
            self._find(file.stat().st_size)
        except Malformed as error:
            self.close()
            raise Trouble(
                f"the IPFS gateway does not answer with blocks (application/vnd.ipld.car), or not with all: {error}; "
                "have the administrator name a trustless gateway in TRAINYARD_FETCH_IPFS_GATEWAY"
            ) from error

    def close(self) -> None:
        self._stream.close()

    def has(self, block: ContentId) -> bool:
        return block.hashed in self._places

    def read(self, block: ContentId) -> bytes:
        """Raises Trouble for a missing or different block."""
        if block.hashed[:1] == b"\0":
            return block.hashed[2:]  # an inline block, too short for a digest
        if block.hashed not in self._places:
            raise Trouble("the IPFS gateway left a block out")
        start, size = self._places[block.hashed]
        self._stream.seek(start)
        try:
            return block.check(self._stream.read(size))
        except Malformed as error:
            raise Trouble(f"the IPFS gateway answers with {error}") from error

    def _find(self, total: int) -> None:
        start, at = self._section(0)
        self._stream.seek(start)
        if b"version" not in self._stream.read(at - start):  # of the header, whose roots are not used
            raise Malformed("it is no CAR file")
        while at < total:
            start, end = self._section(at)
            if end > total:
                raise Malformed("it is cut off")
            self._stream.seek(start)
            head = self._stream.read(min(160, end - start))
            found, length = _binary(head, 0)
            self._places[found.hashed] = (start + length, end - start - length)
            at = end

    def _section(self, at: int) -> tuple[int, int]:
        self._stream.seek(at)
        size, length = varint(self._stream.read(10), 0)
        if not 0 < size <= _MOST_BLOCK_BYTES:
            raise Malformed("it begins otherwise")
        return at + length, at + length + size
