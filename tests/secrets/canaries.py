"""Planted secrets, and the search for them in anything: raw, percent-encoded, in hex and in base64."""

import base64
import gzip
import secrets
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

# What a secret is made of: characters that every encoding writes differently.
TAIL = "/+=.~-"


class Canaries:
    """Values by what they stand for; each is unlike everything else in the world."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def plant(self, name: str, *, head: str = "", tail: str = TAIL) -> str:
        """A new secret to be put somewhere."""
        return self.remember(name, f"{head}canary{secrets.token_hex(12)}{tail}")

    def remember(self, name: str, value: str) -> str:
        """A secret that was made elsewhere."""
        self.values[name] = value
        return value

    def found_in(self, data: bytes | str) -> set[str]:
        """The names of those that stand there in any writing."""
        raw = data.encode() if isinstance(data, str) else data
        return {name for name, value in self.values.items() if any(each in raw for each in writings(value))}

    def found_in_texts(self, texts: Mapping[str, bytes | str]) -> dict[str, set[str]]:
        """Where → names, of those places alone where something stands."""
        return {where: found for where, text in texts.items() if (found := self.found_in(text))}

    def found_below(self, *directories: Path, but: Iterable[Path] = ()) -> dict[str, set[str]]:
        """The same for all files, also for names of files and targets of links."""
        texts: dict[str, bytes | str] = {}
        for path in _files(directories, frozenset(but)):
            texts[f"name of {path}"] = str(path)
            texts[f"in {path}"] = content(path)
        return self.found_in_texts(texts)


def writings(value: str) -> Iterator[bytes]:
    """What to look for; of base64 the middle, which is the same whatever stands before and after."""
    raw = value.encode()
    yield raw
    yield quote(value, safe="").encode()
    yield raw.hex().encode()
    yield raw.hex().upper().encode()
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + raw)[4:-4]
        yield encoded
        yield encoded.replace(b"+", b"-").replace(b"/", b"_")


def content(path: Path) -> bytes:
    """Of a file or a link; unpacked where it is packed."""
    if path.is_symlink():
        return str(path.readlink()).encode()
    data = path.read_bytes()
    return gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data


def _files(directories: Iterable[Path], but: frozenset[Path]) -> Iterator[Path]:
    for directory in directories:
        for path in sorted(directory.rglob("*")):
            if (path.is_symlink() or path.is_file()) and path not in but:
                yield path
