"""Reassembles IPFS files from verified blocks: UnixFS in DAG-PB, of one or many blocks, below directories."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from workers.fetching.content_ids import DAG_PB, RAW, Blocks, ContentId, Malformed, fields, of_link
from workers.fetching.failures import FetchRefused, FetchTooLarge, NotThere, Trouble

_RAW, _DIRECTORY, _FILE, _SHARD = 0, 1, 2, 5  # kinds of UnixFS nodes
_DEEPEST = 64
_PREFIX = 2  # hexadecimal digits before a name in a shard of a large directory


@dataclass(frozen=True)
class _Node:
    kind: int
    data: bytes
    links: tuple[tuple[str, ContentId], ...]


def write_file(car: Path, root: ContentId, path: str, target: Path, *, max_bytes: int) -> None:
    """Write the file at ``path`` below the root. Raises FetchFailed."""
    blocks = Blocks(car)
    try:
        found = root
        for name in filter(None, path.split("/")):
            found = _child(blocks, found, name)
        with target.open("wb") as stream:
            _write(blocks, found, stream, max_bytes, 0)
    except Malformed as error:
        raise Trouble(f"the IPFS gateway answers with {error}") from error
    finally:
        blocks.close()


def _child(blocks: Blocks, directory: ContentId, name: str, depth: int = 0) -> ContentId:
    node = _node(blocks, directory)
    if node.kind not in (_DIRECTORY, _SHARD) or depth > _DEEPEST:
        raise NotThere(f"{name[:200]} is requested below something that is no directory")
    for given, link in node.links:
        if given == name if node.kind == _DIRECTORY else given[_PREFIX:] == name:
            return link
    for given, link in node.links if node.kind == _SHARD else ():
        # Of a large directory the gateway sends only the shards on the path.
        if len(given) == _PREFIX and blocks.has(link):
            return _child(blocks, link, name, depth + 1)
    raise NotThere(f"there is no {name[:200]}")


def _write(blocks: Blocks, content: ContentId, stream: BinaryIO, max_bytes: int, depth: int) -> None:
    links: tuple[ContentId, ...] = ()
    if content.codec == RAW:
        data = blocks.read(content)
    else:
        node = _node(blocks, content)
        if node.kind in (_DIRECTORY, _SHARD):
            raise FetchRefused("it is a directory; name a file in it, as ipfs://cid/path")
        if node.kind not in (_RAW, _FILE) or depth > _DEEPEST:
            raise FetchRefused("it is neither a file nor a directory")
        data, links = node.data, tuple(link for _, link in node.links)
    stream.write(data)
    if stream.tell() > max_bytes:
        raise FetchTooLarge(f"it is larger than {max_bytes} bytes (TRAINYARD_FETCH_MAX_BYTES)")
    for link in links:
        _write(blocks, link, stream, max_bytes, depth + 1)


def _node(blocks: Blocks, content: ContentId) -> _Node:
    if content.codec != DAG_PB:
        raise FetchRefused("it is no file of IPFS (UnixFS)")
    links, kind, data = [], _DIRECTORY, b""
    for number, value in fields(blocks.read(content)):
        if number == 2 and isinstance(value, bytes):
            links.append(_link(value))
        elif number == 1 and isinstance(value, bytes):
            kind, data = _described(fields(value))
    return _Node(kind, data, tuple(links))


def _link(message: bytes) -> tuple[str, ContentId]:
    parts = dict(fields(message))
    target, name = parts.get(1, b""), parts.get(2, b"")
    if not isinstance(target, bytes) or not isinstance(name, bytes):
        raise Malformed("a link of an unknown form")
    return name.decode(errors="replace"), of_link(target)


def _described(message: Iterator[tuple[int, int | bytes]]) -> tuple[int, bytes]:
    kind, data = _RAW, b""
    for number, value in message:
        if number == 1 and isinstance(value, int):
            kind = value
        elif number == 2 and isinstance(value, bytes):
            data = value
    return kind, data
