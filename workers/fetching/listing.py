"""Expands a file, directory or glob to files, for any kind of storage."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any, Protocol

from app.domain.spec.data.formats import format_of
from app.domain.spec.data.splits import TEST, TRAIN, parse_split
from workers.fetching.failures import FetchRefused, NotThere, Unusable

MAGIC = re.compile(r"[*?\[]")
# Names that hub users give to validation splits.
_VALIDATION = frozenset({"val", "dev", "eval", "evaluation"})


@dataclass(frozen=True, kw_only=True)
class ListedPath:
    """``version`` changes with the content, as far as the storage reports it; ``sha256`` if it reports one."""

    path: str
    kind: str = "file"  # or directory, special (a pipe, a device), forbidden (a link to where jobs may not read)
    size: int = 0
    version: str = ""
    sha256: str = ""


class Lister(Protocol):
    """A storage that can be listed."""

    def info(self, path: str) -> ListedPath | None:
        """None when it does not exist; in object stores a non-empty prefix is a directory."""
        ...

    def children(self, path: str) -> Iterable[ListedPath]:
        """The direct children of a directory; ``path`` has no trailing slash."""
        ...


@dataclass(frozen=True, kw_only=True)
class FileSelection:
    """Which files of a directory are selected: all for a tree, else those of one format."""

    max_files: int
    tree: bool = False
    format: str | None = None
    skip: Collection[str] = ()  # patterns of paths in a tree


class Tree:
    """A lister over a directory whose files were listed at once."""

    def __init__(self, files: Iterable[ListedPath]) -> None:
        self._files = {found.path: found for found in files}
        self._below: dict[str, dict[str, ListedPath]] = {"": {}}
        for path, found in self._files.items():
            self._add(path, found)

    def kind(self, path: str) -> str:
        return "directory" if path in self._below else "file"

    def info(self, path: str) -> ListedPath | None:
        return ListedPath(path=path, kind="directory") if path in self._below else self._files.get(path)

    def children(self, path: str) -> Iterable[ListedPath]:
        return self._below.get(path, {}).values()

    def _add(self, path: str, found: ListedPath) -> None:
        parent, _, _ = path.rpartition("/")
        if parent not in self._below:
            self._below[parent] = {}
            self._add(parent, ListedPath(path=parent, kind="directory"))
        self._below[parent][path] = found


def is_glob(path: str) -> bool:
    return MAGIC.search(path) is not None


def expand(lister: Lister, path: str, selection: FileSelection) -> list[tuple[str, ListedPath]]:
    """(name, file), sorted by name. Raises NotThere, FetchRefused, Unusable."""
    path = path if path == "/" else path.rstrip("/")
    found = lister.info(path)
    if found is not None and found.kind == "directory":
        return _few_enough(_of_directory(lister, path, selection), selection)
    if found is not None:
        return [(path.rpartition("/")[2], _regular(found))]
    if not is_glob(path):
        raise NotThere("it does not exist")
    base = _before_magic(path)
    matches = [(_relative(each.path, base), _regular(each)) for each in _matching(lister, path, base, selection)]
    if not matches:
        raise NotThere("no file matches it")
    return sorted(matches, key=_name)


def of_split(files: Sequence[tuple[str, ListedPath]], split: str | None) -> list[tuple[str, ListedPath]]:
    """Files whose name or folder indicates the split; all when none does."""
    name = parse_split(split).name
    return [file for file in files if _indicates(file[0], name)] or list(files)


def one_format(files: Sequence[tuple[str, ListedPath]], only: str | None) -> list[tuple[str, ListedPath]]:
    """The files of a format; without one, all of the only format there is. Raises NotThere, FetchRefused."""
    with_formats = [(format_of(name), (name, found)) for name, found in files]
    formats = sorted({each for each, _ in with_formats if each is not None})
    if only is None and len(formats) > 1:
        raise FetchRefused(f"it contains files of several formats ({', '.join(formats)}); set format")
    chosen = [file for each, file in with_formats if each is not None and each == (only or each)]
    if not chosen:
        kind = f"{only} file" if only else "file of a known format"
        raise NotThere(f"it contains no {kind}; formats are detected by suffix, or name the files by a glob")
    return chosen


def _of_directory(lister: Lister, path: str, selection: FileSelection) -> list[tuple[str, ListedPath]]:
    if selection.tree:
        return sorted(_tree(lister, path, selection), key=_name)
    files = [
        (_relative(each.path, path), each)
        for each in lister.children(path)
        if each.kind in ("file", "forbidden") and not _relative(each.path, path).startswith(".")
    ]
    return sorted(((name, _regular(each)) for name, each in one_format(files, selection.format)), key=_name)


def _tree(lister: Lister, path: str, selection: FileSelection) -> Iterator[tuple[str, ListedPath]]:
    seen, waiting = 0, [path]
    while waiting:
        for each in lister.children(waiting.pop()):
            name = _relative(each.path, path)
            if each.kind == "directory":
                waiting.append(each.path)
            elif not is_skipped(name, selection.skip):
                yield name, _regular(each)
                seen += 1
                if seen > selection.max_files:
                    return  # enough to be refused


def is_skipped(name: str, patterns: Collection[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _matching(lister: Lister, pattern: str, base: str, selection: FileSelection) -> list[ListedPath]:
    """Level by level, so that only matching directories are listed. Raises FetchRefused for a level with too many."""
    level = [ListedPath(path=base, kind="directory")]
    segments = pattern[len(base) :].strip("/").split("/")
    for depth, segment in enumerate(segments):
        kinds = {"directory"} if depth < len(segments) - 1 else {"file", "special", "forbidden"}
        fitting = (
            each
            for directory in level
            for each in lister.children(directory.path)
            if each.kind in kinds and fnmatchcase(_name_in(each.path), segment) and not _is_hidden(each.path, segment)
        )
        level = _few_enough(list(islice(fitting, selection.max_files + 1)), selection)
    return level


def _is_hidden(path: str, segment: str) -> bool:
    return _name_in(path).startswith(".") and not segment.startswith(".")


def _before_magic(path: str) -> str:
    """The directory in which a glob begins."""
    plain = path[: MAGIC.search(path).start()] if is_glob(path) else path  # type: ignore[union-attr]
    return plain.rpartition("/")[0] or ("/" if path.startswith("/") else "")


def _few_enough(found: list[Any], selection: FileSelection) -> list[Any]:
    if len(found) > selection.max_files:
        raise FetchRefused(
            f"it names more than {selection.max_files} files; join some of them, or have the administrator raise "
            "TRAINYARD_FETCH_MAX_FILES"
        )
    return found


def _regular(found: ListedPath) -> ListedPath:
    if found.kind == "forbidden":
        raise NotThere(f"{_name_in(found.path)} is a link to a place that jobs may not read")
    if found.kind != "file":
        raise Unusable("it is not a regular file")
    return found


def _indicates(path: str, split: str) -> bool:
    words = re.split(r"[^a-z0-9]+", path.lower())
    if split in (TRAIN, TEST):
        return any(word.startswith(split) for word in words)
    return any(word.startswith("valid") or word in _VALIDATION for word in words)


def _relative(path: str, base: str) -> str:
    return path[len(base) :].lstrip("/")


def _name_in(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _name(file: tuple[str, ListedPath]) -> str:
    return file[0]
