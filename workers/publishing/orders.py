"""The request to the publishing child process: plain data, because it is sent through a pipe."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class PublishedFile:
    """``path`` is relative to the model's directory."""

    path: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class PublishOrder:
    """A finished model: its local directory and its files."""

    job_id: str
    job_name: str
    source: Path
    files: tuple[PublishedFile, ...]
    weight_files: tuple[str, ...] = ()
    is_streamed: bool = False  # the source is the address of ``FileStreams`` in place of a directory

    def document(self) -> dict[str, Any]:
        """The order as JSON; ``order_of`` reads it."""
        return {**vars(self), "source": str(self.source), "files": [vars(file) for file in self.files]}

    def in_order(self) -> list[PublishedFile]:
        """Weights first, and last the files that make a reader treat the directory as a model."""
        return sorted(self.files, key=lambda file: (self._rank(file.path), file.path))

    def _rank(self, path: str) -> int:
        if path in self.weight_files:
            return 0
        if path.endswith(".index.json"):
            return 2
        return {"config.json": 3, "adapter_config.json": 3, "README.md": 4}.get(path, 1)


def order_of(document: Mapping[str, Any]) -> PublishOrder:
    """The order from ``PublishOrder.document``."""
    files = tuple(PublishedFile(**file) for file in document["files"])
    weights = tuple(document["weight_files"])
    return PublishOrder(**{**document, "source": Path(document["source"]), "files": files, "weight_files": weights})
