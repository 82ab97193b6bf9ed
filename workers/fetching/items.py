"""The request to the fetching child process and its answer; both as JSON."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from app.domain.spec.credentials import Access
from config.fetching import FetchSettings

# The same weights in the formats of other frameworks.
NOT_NEEDED = ("*.msgpack", "*.h5", "*.ot", "*.onnx", "*.tflite", "*.gguf", "onnx/*", "original/*", ".git/*", ".cache/*")
# Not needed to inspect a model and its tokenizer.
WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth")


@dataclass(frozen=True, kw_only=True)
class Item:
    """``kind`` is data, model or code; a ``tree`` is everything below a directory. ``target`` receives the links."""

    kind: str
    location: str
    target: str
    max_bytes: int
    limit_name: str  # the setting that defines ``max_bytes``
    tree: bool = False
    format: str | None = None
    split: str | None = None
    revision: str | None = None
    hub_id: bool = False  # ``location`` is a model's id on the hub
    without_weights: bool = False
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def access(self) -> Access:
        return Access(credentials=self.credentials, options=self.options)

    @property
    def skip(self) -> tuple[str, ...]:
        """Names of files that need not be fetched."""
        if self.kind != "model":
            return ()
        return (*NOT_NEEDED, *WEIGHTS) if self.without_weights else NOT_NEEDED


@dataclass(frozen=True, kw_only=True)
class FetchedFile:
    """``commit``: of the hub's repository that it comes from."""

    path: str
    name: str
    size_bytes: int
    sha256: str
    commit: str = ""


_DIRECTORIES = ("pvc_dir", "oci_dir", "obs_dir")


def settings_to_json(settings: FetchSettings) -> dict[str, Any]:
    return {**asdict(settings), **{name: str(getattr(settings, name) or "") for name in _DIRECTORIES}}


def settings_from_json(document: Mapping[str, Any]) -> FetchSettings:
    values: dict[str, Any] = {each.name: document[each.name] for each in fields(FetchSettings)}
    lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    directories = {name: Path(values[name]) if values[name] else None for name in _DIRECTORIES}
    return FetchSettings(**{**values, **lists, **directories})
