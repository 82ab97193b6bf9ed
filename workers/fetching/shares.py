"""Fetches scaidrive:// and scaiatlas:// with the submitting user's token; directories are listed first.

The service answers ``GET <directory>/?list`` with JSON, ``{"files": [{"path", "size", "sha256", "etag"}, …]}``: all
files below the directory, of which ``sha256`` and ``etag`` may be left out (docs/reference/drive-services.md).
"""

import functools
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote, urlsplit

from workers.fetching import tokens
from workers.fetching.context import Context, Remote, fetch_all
from workers.fetching.failures import FetchTooLarge, Missing, NotThere, Trouble, Unusable
from workers.fetching.items import FetchedFile, Item
from workers.fetching.listing import FileSelection, ListedPath, Tree, expand
from workers.fetching.uris import authority, place, scheme_of
from workers.fetching.web import Download, DownloadRequest

LISTING = "/?list"
ENTRY_BYTES = 2048  # listing size limit per file
MOST_PATH_BYTES, MOST_NAME_BYTES, MOST_ETAG = 1024, 255, 1024

_NOT_IN_PATHS = re.compile(r"[\x00-\x1f\x7f\\\ud800-\udfff]")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_ETAG = re.compile(r'(?:W/)?"[\x21\x23-\x7e]*"')  # RFC 9110, limited to ASCII


def share_request(context: Context, item: Item) -> DownloadRequest:
    """The request for a file as the submitting user. Raises FetchFailed."""
    scheme, where = scheme_of(item.location), place(item.location)
    base = tokens.share_url(scheme, context.settings)
    token = tokens.token_for(scheme, context.settings, context.secrets)
    return DownloadRequest(
        url=f"{base}/{quote(where.container)}/{quote(where.path, safe='/%')}",
        headers={"Authorization": f"Bearer {token}"},
        max_bytes=item.max_bytes,
        max_bytes_name=item.limit_name,
        trusted=authority(base),
        personal=True,
        refusal=f"{scheme} does not accept the token of the job's user; it may have expired: {tokens.way_out(scheme)}",
    )


def names_directory(item: Item) -> bool:
    """A model is always a directory; data is one when its URI ends with a slash."""
    return item.kind == "model" or item.location.endswith("/")


def fetch_directory(context: Context, item: Item) -> list[FetchedFile]:
    """The selected files of a directory, as of one listing. Raises FetchFailed."""
    directory = _Directory(context, share_request(context, item))
    listed = directory.listed()
    selection = FileSelection(max_files=context.settings.max_files, tree=item.tree, format=item.format, skip=item.skip)
    chosen = expand(Tree(listed), "", selection)
    directory.refuse_unreadable([found for _, found in chosen])
    files = fetch_all(context, item, directory.remotes(chosen))
    if not all(found.version for _, found in chosen) and directory.listed() != listed:
        raise Trouble("the directory was changed while it was read")
    return files


class _Directory:
    def __init__(self, context: Context, request: DownloadRequest) -> None:
        self._context = context
        self._request = replace(request, url=request.url.rstrip("/"))
        self._host = urlsplit(request.url).hostname

    def listed(self) -> list[ListedPath]:
        """All files below it. Raises FetchFailed."""
        most = ENTRY_BYTES * self._context.settings.max_files
        request = replace(
            self._request,
            url=self._request.url + LISTING,
            max_bytes=most,
            headers={**self._request.headers, "Accept": "application/json"},
        )
        with self._context.cache.scratch(0) as scratch:
            answer = scratch / "listing"
            try:
                self._download(request).to(answer)
            except Missing as error:
                raise self._missing() from error
            except FetchTooLarge as error:
                raise Unusable(
                    f"{self._host} lists it with more than {most} bytes ({ENTRY_BYTES} for each of "
                    "TRAINYARD_FETCH_MAX_FILES), or it is a single file; name a directory with fewer files"
                ) from error
            except Unusable as error:
                raise _no_listing(self._host) from error
            return files_in(answer.read_bytes(), self._host)

    def refuse_unreadable(self, files: list[ListedPath]) -> None:
        """Deny cached files to a user who may list the directory but not read it. Raises FetchFailed.

        Checks the largest file: a description may be public.
        """
        if not files:
            return
        largest = max(files, key=lambda found: found.size)
        try:
            self._download(self._request_of(largest)).check()
        except Missing as error:
            raise _changed(largest) from error

    def remotes(self, chosen: list[tuple[str, ListedPath]]) -> Iterator[Remote]:
        for name, found in chosen:
            yield Remote(
                key=f"share {self._request_of(found).url}",
                name=name,
                found=found,
                download=functools.partial(self._fetch, found),
            )

    def _fetch(self, found: ListedPath, part: Path) -> None:
        if found.size == 0:
            part.touch()
            return
        try:
            version = self._download(self._request_of(found)).to(part)
        except (Missing, Unusable) as error:  # Unusable: empty, or larger than listed
            raise _changed(found) from error
        if found.version and not found.sha256 and _etag_of(version) != found.version:
            raise Trouble(
                f"{found.path} has another ETag than was listed; it is being changed, or the service lists others than "
                "it answers with"
            )

    def _missing(self) -> NotThere:
        """Why there is no listing."""
        try:
            self._download(self._request).check()
        except NotThere:
            return NotThere(f"{self._host} has no such directory, or lists none (404)")
        return NotThere(f"at {self._host} it is a single file; name the directory that holds it")

    def _request_of(self, found: ListedPath) -> DownloadRequest:
        return replace(self._request, url=f"{self._request.url}/{quote(found.path)}", max_bytes=found.size)

    def _download(self, request: DownloadRequest) -> Download:
        # Cache space was reserved when the sizes were listed.
        return Download(
            self._context.settings, request, before_bytes=lambda _: None, on_bytes=self._context.heart.arrived
        )


def files_in(answer: bytes, host: str | None) -> list[ListedPath]:
    """The files of a listing, sorted by path. Raises Unusable for an invalid listing, or one that is unsafe as a
    directory.
    """
    try:
        document = json.loads(answer)
    except (ValueError, RecursionError) as error:
        raise _no_listing(host) from error
    entries = document.get("files") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise _no_listing(host)
    files: dict[str, ListedPath] = {}
    for entry in entries:
        found = _found(entry)
        if found.path in files:
            raise _malformed(f"{found.path!r} is listed twice")
        files[found.path] = found
    both = next((parent for path in files for parent in _parents(path) if parent in files), None)
    if both is not None:
        raise _malformed(f"{both!r} is a file, and a directory of others")
    return [files[path] for path in sorted(files)]


def _found(entry: object) -> ListedPath:
    if not isinstance(entry, dict):
        raise _malformed("an entry is no object")
    path = _path(entry.get("path"))
    size, sha256, etag = entry.get("size"), entry.get("sha256") or "", entry.get("etag") or ""
    if entry.get("type", "file") != "file":
        raise _malformed(f"{path!r} is of type {str(entry['type'])[:40]!r}, and only files are listed")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise _malformed(f"the size of {path!r} is no number of bytes")
    if not isinstance(sha256, str) or (sha256 and _SHA256.fullmatch(sha256.lower()) is None):
        raise _malformed(f"the sha256 of {path!r} is not 64 hexadecimal digits")
    if not isinstance(etag, str) or (etag and (len(etag) > MOST_ETAG or _ETAG.fullmatch(etag) is None)):
        raise _malformed(f"the etag of {path!r} is none of RFC 9110, quotes included")
    return ListedPath(path=path, size=size, version=etag or sha256.lower(), sha256=sha256.lower())


def _path(path: object) -> str:
    if not isinstance(path, str) or not path:
        raise _malformed("an entry has no path")
    names = path.split("/")
    if (
        _NOT_IN_PATHS.search(path)
        or any(name in ("", ".", "..") or len(name.encode()) > MOST_NAME_BYTES for name in names)
        or len(path.encode()) > MOST_PATH_BYTES
    ):
        raise _malformed(f"{path[:200]!r} is not the path of a file below the directory")
    return path


def _parents(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _etag_of(version: str) -> str:
    """The ETag in a version of `Download`."""
    return str(json.loads(version)["ETag"]) if version else ""


def _changed(found: ListedPath) -> Trouble:
    return Trouble(f"{found.path} is not as it was listed; is it being changed?")


def _malformed(why: str) -> Unusable:
    return Unusable(f"the service's listing of it is malformed: {why}; tell the administrator")


def _no_listing(host: str | None) -> Unusable:
    return Unusable(
        f"{host} does not answer with a listing of files: it is a single file where a directory is needed, or the "
        "service lists no directories"
    )
