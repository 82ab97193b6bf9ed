"""Files and directories as IPFS has them: blocks with their content ids, and the CAR files that gateways send."""

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

RAW, DAG_PB = 0x55, 0x70
_ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


@dataclass
class Dag:
    """A block and all below it, by their binary content ids."""

    cid: bytes
    size: int
    blocks: dict[bytes, bytes] = field(default_factory=dict)

    @property
    def text(self) -> str:
        if self.cid[0] == 1:
            return "b" + base64.b32encode(self.cid).decode().lower().rstrip("=")
        value, signs = int.from_bytes(self.cid), ""
        while value:
            value, rest = divmod(value, 58)
            signs = _ALPHABET[rest] + signs
        return signs

    def car(self, *, but: Iterable[bytes] = (), instead: Mapping[bytes, bytes] | None = None) -> bytes:
        """The file with all blocks, or without some, or with other bytes under their ids."""
        # {"roots": [], "version": 1} in DAG-CBOR: who asked knows the root.
        parts = [_section(b"\xa2\x65roots\x80\x67version\x01")]
        parts += [_section(cid + (instead or {}).get(cid, data)) for cid, data in self.blocks.items() if cid not in but]
        return b"".join(parts)


def raw(data: bytes) -> Dag:
    cid = bytes([1, RAW]) + _multihash(data)
    return Dag(cid, len(data), {cid: data})


def file_of(data: bytes = b"", parts: Sequence[Dag] = ()) -> Dag:
    """A UnixFS file of one block, or whose content are the parts; its id is one of version 0."""
    size = len(data) + sum(part.size for part in parts)
    described = b"\x08\x02" + (_bytes(2, data) if data else b"") + _number(3, size)
    described += b"".join(_number(4, part.size) for part in parts)
    return _node(described, [("", part) for part in parts], size)


def directory(entries: Mapping[str, Dag]) -> Dag:
    return _node(b"\x08\x01", list(entries.items()), 0)


def shard(entries: Mapping[str, Dag]) -> Dag:
    """A part of a large directory: its names have two digits before them."""
    return _node(b"\x08\x05\x28\x22\x30\x80\x02", list(entries.items()), 0)


def _node(described: bytes, links: list[tuple[str, Dag]], size: int) -> Dag:
    message = b"".join(
        _bytes(2, _bytes(1, each.cid) + _bytes(2, name.encode()) + _number(3, each.size)) for name, each in links
    ) + _bytes(1, described)
    blocks = {_multihash(message): message}
    for _, each in links:
        blocks |= each.blocks
    return Dag(_multihash(message), size, blocks)


def _multihash(data: bytes) -> bytes:
    return b"\x12\x20" + hashlib.sha256(data).digest()


def _varint(value: int) -> bytes:
    found = b""
    while value > 0x7F:
        found += bytes([value & 0x7F | 0x80])
        value >>= 7
    return found + bytes([value])


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _bytes(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _section(data: bytes) -> bytes:
    return _varint(len(data)) + data
