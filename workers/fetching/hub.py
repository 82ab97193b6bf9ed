"""Fetches models and data sets from a hub with huggingface_hub: listed at one commit, verified by the hub's digests."""

import functools
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from huggingface_hub import HfApi, hf_hub_download, hf_hub_url
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.hf_api import RepoFile

from app.domain.spec.credentials import TOKEN
from workers.fetching.cache import stored_bytes
from workers.fetching.context import Context, Remote, fetch_all
from workers.fetching.failures import HubUnreachable, NotThere, Trouble
from workers.fetching.items import FetchedFile, Item
from workers.fetching.listing import FileSelection, ListedPath, Tree, expand, is_skipped, of_split, one_format
from workers.fetching.uris import HubPlace, hub_place, shown

WAY_IN = "output_config.hub_token, or a token in credentials beside it"
PASSING = frozenset({408, 429})


@dataclass(frozen=True, kw_only=True)
class _Commit:
    """A repository's files at one commit."""

    commit: str
    files: list[ListedPath]


def fetch(context: Context, item: Item) -> list[FetchedFile]:
    """Raises FetchFailed."""
    where = _where(item)
    token = item.credentials.get(TOKEN) or context.secrets.get("output_config.hub_token") or None
    repository = _Repository(context, where, token)
    listed = repository.listed(keep=item.kind == "model")
    chosen = _chosen(context, item, where, listed.files)
    files = fetch_all(context, item, repository.remotes(chosen, listed.commit))
    return [replace(file, commit=listed.commit) for file in files]


def _where(item: Item) -> HubPlace:
    if item.hub_id:
        return HubPlace(kind="model", repository=item.location, revision=item.revision, path="")
    where = hub_place(item.location)
    return HubPlace(
        kind=where.kind, repository=where.repository, revision=where.revision or item.revision, path=where.path
    )


def _chosen(context: Context, item: Item, where: HubPlace, files: list[ListedPath]) -> list[tuple[str, ListedPath]]:
    selection = FileSelection(max_files=context.settings.max_files, tree=True, skip=item.skip)
    tree = Tree(files)
    if where.path and tree.kind(where.path) != "directory":
        return expand(tree, where.path, selection)
    below = [each for each in expand(tree, where.path, selection) if not is_skipped(each[0], (".*",))]
    return below if item.tree else one_format(of_split(below, item.split), item.format)


class _Repository:
    def __init__(self, context: Context, where: HubPlace, token: str | None) -> None:
        self._context = context
        self._where = where
        self._token = token
        self._hub = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
        self._name = where.repository + (f" at revision {where.revision}" if where.revision else "")

    def listed(self, *, keep: bool) -> _Commit:
        """``keep``: use the last listing while the hub is unreachable."""
        reader = hashlib.sha256((self._token or "").encode()).hexdigest()[:16]
        key = f"hub-listing {self._hub} {self._where.kind} {self._name} {reader}"
        try:
            found = self._list()
        except Trouble:
            text = self._context.cache.noted(key) if keep else None
            if text is None:
                raise
            known = json.loads(text)
            return _Commit(commit=known["commit"], files=[ListedPath(**each) for each in known["files"]])
        self._context.cache.note(key, json.dumps(asdict(found)))
        return found

    def _list(self) -> _Commit:
        api, kind, repository = HfApi(token=self._token), self._where.kind, self._where.repository
        try:
            info = api.repo_info(repository, revision=self._where.revision, repo_type=kind)
            listed = api.list_repo_tree(repository, recursive=True, revision=info.sha, repo_type=kind)
            files = [_found(each) for each in listed if isinstance(each, RepoFile)]
            if getattr(info, "gated", None) and files:
                self._refuse_without_access(api, info.sha, files)
        except Exception as error:
            raise self._failure(error) from error
        return _Commit(commit=info.sha or "", files=files)

    def _refuse_without_access(self, api: HfApi, commit: str | None, files: list[ListedPath]) -> None:
        """Gated repositories can be listed by everyone, so cached files need an access check per project."""
        largest = max(files, key=lambda found: found.size)  # a description may be public
        url = hf_hub_url(
            self._where.repository, largest.path, repo_type=self._where.kind, revision=commit, endpoint=api.endpoint
        )
        api.get_hf_file_metadata(url=url, token=self._token)

    def remotes(self, chosen: list[tuple[str, ListedPath]], commit: str) -> Iterator[Remote]:
        for name, found in chosen:
            yield Remote(
                key=f"{self._hub} {self._where.kind} {self._where.repository} {found.path}",
                name=name,
                found=found,
                download=functools.partial(self._download, found, commit),
            )

    def _download(self, found: ListedPath, commit: str, part: Path) -> None:
        scratch = part.with_name("hub")
        try:
            with self._context.heart.watching(lambda: stored_bytes(scratch)):
                path = hf_hub_download(
                    self._where.repository,
                    found.path,
                    revision=commit,
                    repo_type=self._where.kind,
                    token=self._token,
                    local_dir=scratch,
                )
        except Exception as error:
            raise self._failure(error) from error
        Path(path).replace(part)
        if not found.sha256 and _git_digest(part) != found.version:
            raise Trouble(f"{found.path}: {self._hub} sends other bytes than it lists")

    def _failure(self, error: Exception) -> Exception:
        """The failure for an error of the hub's client; bugs propagate."""
        name, hub, status = self._name, self._hub, getattr(getattr(error, "response", None), "status_code", 0)
        if isinstance(error, GatedRepoError):
            return NotThere(f"{hub} demands an accepted licence and a token for {name}")
        if isinstance(error, RevisionNotFoundError):
            return NotThere(f"{self._where.repository} has no revision {self._where.revision} at {hub}")
        if isinstance(error, (RepositoryNotFoundError, EntryNotFoundError)):
            return NotThere(f"{name} is not at {hub}, or only for others; for a private one give {WAY_IN}")
        if isinstance(error, HfHubHTTPError) and 400 <= status < 500 and status not in PASSING:
            return NotThere(f"{hub} does not let us read {name} ({status}); for a private one give {WAY_IN}")
        if isinstance(error, OSError) and error.errno is not None and not isinstance(error, HfHubHTTPError):
            return error  # disk error
        if isinstance(error, OSError) or type(error).__module__.startswith("httpx"):
            # Likely a network failure, which another attempt may not see.
            return HubUnreachable(shown(f"the hub {hub} failed for {name}: {error}")[:800])
        return error


def _found(file: RepoFile) -> ListedPath:
    return ListedPath(
        path=file.path, size=file.size, version=file.blob_id, sha256=file.lfs.sha256 if file.lfs is not None else ""
    )


def _git_digest(path: Path) -> str:
    """The git blob id of a file."""
    digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
