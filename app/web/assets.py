"""Scripts and styles of the pages. Their URL has a hash of all of them, so that browsers keep them for good."""

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent / "static"
IMMUTABLE = "public, max-age=31536000, immutable"
_TEXT = {".css", ".js", ".svg", ".json"}


@dataclass(frozen=True, kw_only=True)
class Asset:
    """``packed`` is gzipped content; None where it would not be smaller."""

    content: bytes
    packed: bytes | None
    media_type: str


@cache
def assets() -> dict[str, Asset]:
    """Every file below `static`, by its path."""
    files = sorted(path for path in ROOT.rglob("*") if path.is_file())
    return {path.relative_to(ROOT).as_posix(): _asset(path) for path in files}


@cache
def version() -> str:
    """A hash of all files, which is a directory of their URLs: modules import each other by relative names."""
    digest = hashlib.sha256()
    for name, asset in assets().items():
        digest.update(f"{name}\0{len(asset.content)}\0".encode() + asset.content)
    return digest.hexdigest()[:16]


def _asset(path: Path) -> Asset:
    content = path.read_bytes()
    packed = gzip.compress(content, 9, mtime=0) if path.suffix in _TEXT else None
    media_type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    if path.suffix == ".js":
        media_type = "text/javascript"
    return Asset(content=content, packed=packed, media_type=media_type)
