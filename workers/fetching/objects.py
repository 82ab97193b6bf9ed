"""Fetches from object stores: single objects, all below a prefix, or a glob."""

import functools
from collections.abc import Iterator
from pathlib import Path

import s3fs
from fsspec.callbacks import Callback

from workers.fetching.context import Context, Remote, fetch_all, reader_of
from workers.fetching.failures import Trouble
from workers.fetching.filesystems import ERRORS, Objects, checked_path, filesystem, service
from workers.fetching.items import FetchedFile, Item
from workers.fetching.listing import FileSelection, ListedPath, expand
from workers.fetching.uris import scheme_of


def fetch(context: Context, item: Item) -> list[FetchedFile]:
    """Raises FetchFailed."""
    scheme = scheme_of(item.location)
    known = service(scheme, context.settings, item.access)
    path = checked_path(item.location, known)
    files = filesystem(scheme, known)
    store = _Store(context, files, Objects(files, scheme, known, item.access))
    selection = FileSelection(max_files=context.settings.max_files, tree=item.tree, format=item.format, skip=item.skip)
    origin = f"{scheme}://{known.endpoint}{reader_of(item)}"
    return fetch_all(context, item, store.remotes(expand(store.lister, path, selection), origin))


class _Store:
    def __init__(self, context: Context, files: s3fs.S3FileSystem, lister: Objects) -> None:
        self._context = context
        self._files = files
        self.lister = lister

    def remotes(self, chosen: list[tuple[str, ListedPath]], origin: str) -> Iterator[Remote]:
        for name, found in chosen:
            yield Remote(
                key=f"{origin}/{found.path}", name=name, found=found, download=functools.partial(self._download, found)
            )

    def _download(self, found: ListedPath, part: Path) -> None:
        try:
            self._files.get_file(found.path, str(part), callback=_ProgressCallback(self._context))
        except ERRORS as error:
            if isinstance(error, OSError) and error.errno is not None and error.filename == str(part):
                raise
            raise self.lister.failure(error) from error
        after = self.lister.info(found.path)
        if after is None or after.version != found.version:
            raise Trouble(f"{found.path} was changed while it was read")


class _ProgressCallback(Callback):  # type: ignore[misc]
    """Forwards download progress."""

    def __init__(self, context: Context) -> None:
        super().__init__()
        self._heart = context.heart

    def relative_update(self, inc: int = 1) -> None:
        self._heart.arrived(inc)
