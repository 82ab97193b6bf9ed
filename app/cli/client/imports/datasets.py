"""Data sources from both tools: where they are, and one mapping of columns for all of them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from app.cli.client.imports.draft import Draft

_SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".parquet", ".txt", ".arrow", ".gz", ".zst")
_FORMATS = {"csv": "csv", "parquet": "parquet", "arrow": "arrow", "text": "text", "json": "", "jsonl": "jsonl"}
_SPLITS = re.compile(r"(train|validation|valid|val|dev|eval|test)(\[.*\])?")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_SHAREGPT = ("conversations", "from", "value")
_SHAREGPT_ROLES = {"human": "user", "gpt": "assistant", "system": "system", "user": "user", "assistant": "assistant"}


@dataclass
class DraftSources:
    """The sources of ``data_config`` with the mapping of their columns."""

    draft: Draft
    listed: list[dict[str, Any]] = field(default_factory=list)
    _mappings: list[Mapping[str, str]] = field(default_factory=list)

    def add(self, key: str, source: dict[str, Any], mapping: Mapping[str, str]) -> None:
        self.listed.append(source)
        if self._mappings and mapping != self._mappings[0]:
            reason = "one field_mapping holds for all sources, that of the first one: give the columns the same names"
            self.draft.note(key, dict(mapping), reason)
        self._mappings.append(mapping)

    def finish(self) -> None:
        """Write them into the draft."""
        self.draft.data["sources"] = self.listed
        if self._mappings and self._mappings[0]:
            self.draft.data.setdefault("preprocess", {})["field_mapping"] = dict(self._mappings[0])


def located(
    draft: Draft, key: str, path: str, *, kind: str = "", revision: str = "", split: str = ""
) -> dict[str, Any]:
    """A source of this path: a file, a directory, a URI, or the name of a data set of the hub."""
    source: dict[str, Any] = {"path": path}
    if path.startswith(("gs://", "gcs://", "az://", "abfs://", "adl://")):
        draft.note(f"{key}.path", path, "this storage can't be read: copy it to s3://, https:// or a directory")
    elif "://" not in path and _is_hub_id(path):
        source["path"] = f"hf://datasets/{path}" + (f"@{revision}" if revision else "")
    if kind and _FORMATS.get(kind):
        source["format"] = _FORMATS[kind]
    if split and _SPLITS.fullmatch(split):
        source["split"] = split
    elif split:
        _choose_files(draft, key, source, split)
    return source


def _is_hub_id(path: str) -> bool:
    return bool(_HUB_ID.fullmatch(path)) and not path.startswith(".") and PurePosixPath(path).suffix not in _SUFFIXES


def _choose_files(draft: Draft, key: str, source: dict[str, Any], split: str) -> None:
    """A split of another name is a choice of files, named as the hub's own converter names them."""
    if source["path"].startswith("hf://"):
        name, bracket, rows = split.partition("[")
        source["path"] += f"/data/{name}-*.parquet"
        source["split"] = f"train{bracket}{rows}"
        draft.note(f"{key}.split", split, f"is a choice of files, {source['path']}: check that they are there")
    else:
        draft.note(f"{key}.split", split, "splits are train, validation and test: name the split's files in path")


def of_messages(column: str, role: str, content: str, roles: Mapping[str, str]) -> dict[str, str]:
    """The mapping of conversations; ``roles``: name in the data → ours. Those of ShareGPT need none."""
    unusual = {name: ours for name, ours in roles.items() if name != ours}
    if (column, role, content) == _SHAREGPT and unusual.items() <= _SHAREGPT_ROLES.items():
        return {}
    mapping = {"messages": column} if column != "messages" else {}
    if role != "role":
        mapping["messages.role"] = role
    if content != "content":
        mapping["messages.content"] = content
    return mapping | {f"roles.{name}": ours for name, ours in unusual.items()}


def renamed(**columns: str) -> dict[str, str]:
    """The mapping of columns whose names are not ours."""
    return {ours: column for ours, column in columns.items() if column != ours}
