"""What the hub of the tests keeps in memory: accounts, repositories with their commits, and large objects."""

import hashlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

# As the real hub's .gitattributes has them; everything else is a plain git file unless it is large or binary.
LARGE_NAMES = (".safetensors", ".bin", ".pt", ".parquet", ".arrow", ".gz", ".zst", ".zip", ".model", ".npz")
LARGE_BYTES = 1 << 20
MAIN = "main"


class HubError(Exception):
    """An answer other than success; ``code`` is what the real hub puts into X-Error-Code."""

    def __init__(self, status: int, message: str, code: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code


@dataclass(frozen=True)
class Blob:
    """One file at one commit."""

    data: bytes
    large: bool

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @property
    def pointer(self) -> bytes:
        return f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.sha256}\nsize {len(self.data)}\n".encode()

    @property
    def oid(self) -> str:
        """Git's name of it; of a large file it is that of the pointer."""
        stored = self.pointer if self.large else self.data
        return hashlib.sha1(b"blob %d\0" % len(stored) + stored, usedforsecurity=False).hexdigest()

    @property
    def etag(self) -> str:
        return self.sha256 if self.large else self.oid

    def entry(self, path: str) -> dict[str, Any]:
        """As a listing shows it."""
        entry: dict[str, Any] = {"type": "file", "oid": self.oid, "size": len(self.data), "path": path}
        if self.large:
            entry["lfs"] = {"oid": self.sha256, "size": len(self.data), "pointerSize": len(self.pointer)}
        return entry


@dataclass
class Commit:
    oid: str
    message: str
    files: dict[str, Blob]


@dataclass
class Repository:
    """``kind`` is "models" or "datasets", ``name`` is "owner/name"."""

    kind: str
    name: str
    private: bool = False
    gated: bool = False
    commits: list[Commit] = field(default_factory=list)
    refs: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.commit("initial commit", {})

    def commit(self, message: str, files: dict[str, Blob], branch: str = MAIN) -> Commit:
        number = f"{self.kind}/{self.name}/{branch}/{len(self.commits)}/{message}"
        made = Commit(hashlib.sha1(number.encode(), usedforsecurity=False).hexdigest(), message, dict(files))
        self.commits.append(made)
        self.refs[branch] = made.oid
        return made

    def at(self, revision: str) -> Commit:
        """By branch, tag or commit. Raises HubError."""
        oid = self.refs.get(revision, revision)
        for commit in self.commits:
            if commit.oid == oid:
                return commit
        raise HubError(404, f"Invalid rev id: {revision}", "RevisionNotFound")


@dataclass(frozen=True)
class Account:
    name: str
    may_write: bool = True
    organizations: tuple[str, ...] = ()

    def owns(self, repository: str) -> bool:
        return repository.partition("/")[0] in (self.name, *self.organizations)


class Repositories:
    """Everything the hub knows; safe for several threads."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.accounts: dict[str, Account] = {}  # by token
        self.objects: dict[str, bytes] = {}  # large ones, by SHA-256
        self.parts: dict[tuple[str, int], bytes] = {}
        self._all: dict[tuple[str, str], Repository] = {}

    def add(self, repository: Repository) -> Repository:
        """Raises HubError when there is one of that name."""
        with self.lock:
            if (repository.kind, repository.name) in self._all:
                raise HubError(409, "You already created this repo")
            self._all[repository.kind, repository.name] = repository
            return repository

    def get(self, kind: str, name: str) -> Repository | None:
        return self._all.get((kind, name))

    def visible(self, kind: str, name: str, account: Account | None) -> Repository:
        """Raises HubError alike for one that is missing and one that is none of the caller's business."""
        repository = self.get(kind, name)
        hidden = repository is not None and repository.private and not (account is not None and account.owns(name))
        if repository is None or hidden:
            raise HubError(401 if account is None else 404, "Repository not found", "RepoNotFound")
        return repository

    def writable(self, kind: str, name: str, account: Account | None) -> Repository:
        repository = self.visible(kind, name, account)
        if account is None:
            raise HubError(401, "Invalid username or password.")
        if not account.may_write or not account.owns(name):
            raise HubError(403, f"you have no write access to {name} with this token")
        return repository

    def blob(self, path: str, data: bytes) -> Blob:
        large = is_large(path, len(data), data[:512])
        if large:
            self.objects[hashlib.sha256(data).hexdigest()] = data
        return Blob(data, large)

    def stored(self, oid: str) -> bytes:
        try:
            return self.objects[oid]
        except KeyError:
            raise HubError(400, f"Your push was rejected because the LFS object {oid} was not uploaded") from None


def is_large(path: str, size: int, sample: bytes) -> bool:
    """Whether the hub wants a file by the LFS protocol; empty ones never."""
    return size > 0 and (path.endswith(LARGE_NAMES) or size > LARGE_BYTES or b"\0" in sample)


def listing(files: Mapping[str, Blob], folder: str, *, recursive: bool) -> Iterator[dict[str, Any]]:
    """Files and folders below a folder, sorted by path. Raises HubError when there is no such folder."""
    prefix = f"{folder}/" if folder else ""
    inside = sorted(path for path in files if path.startswith(prefix))
    if folder and not inside:
        raise HubError(404, f"{folder} does not exist", "EntryNotFound")
    shown: set[str] = set()
    for path in inside:
        parts = path.removeprefix(prefix).split("/")
        for depth in range(1, len(parts)):
            parent = prefix + "/".join(parts[:depth])
            if parent not in shown and (recursive or depth == 1):
                shown.add(parent)
                oid = hashlib.sha1(parent.encode(), usedforsecurity=False).hexdigest()
                yield {"type": "directory", "oid": oid, "size": 0, "path": parent}
        if recursive or len(parts) == 1:
            yield files[path].entry(path)
