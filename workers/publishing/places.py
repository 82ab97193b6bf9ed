"""The destination of a job's model, as its document and this node's rules define it, with all links resolved."""

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from app.domain.errors import BadSpec
from app.domain.spec.credentials import NO_ACCESS, Access
from app.domain.spec.locations.paths import local_path, output_directory, within
from app.services.requests.storage_access import reading_rules
from config.settings import Settings
from workers.fetching.failures import FetchFailed
from workers.fetching.local import CLAIM_MODE, CLAIMS, claimed, volumes_of
from workers.fetching.uris import BUCKETS, place, scheme_of, volume
from workers.publishing.failures import NotPublished

FIELD = "output_config.output_path"
NOT_OPENED = (
    "it is a directory of this installation, which takes neither credentials nor storage_options; leave them out, or "
    "name its service by endpoint_url"
)
_MODE = 0o777  # of a bucket's directory, less the umask
OWN = "the platform stores its own files there; name another location"


@dataclass(frozen=True, kw_only=True)
class Destination:
    """``location`` is passed to the child: an absolute path, or a URI. ``uri`` is shown to users."""

    location: str
    uri: str

    def shown(self, folder: str) -> str:
        """The URI of the directory itself or of a folder in it."""
        return f"{self.uri}/{folder}" if folder else self.uri


def destination(settings: Settings, project: str, output_path: str, access: Access = NO_ACCESS) -> Destination:
    """Raises NotPublished for a place that no job may write to, or that its credentials do not fit."""
    scheme = scheme_of(output_path)
    try:
        if scheme == "file":
            return _local(settings, project, output_path)
        if scheme == "pvc" or (settings.fetch.directory_of(scheme) is not None and not access.endpoint):
            if access.credentials or access.options:
                raise NotPublished(NOT_OPENED)
            return Destination(location=_in_volume(settings, project, output_path), uri=output_path.rstrip("/"))
        if scheme in BUCKETS:
            _refuse_own_objects(settings, output_path)
    except (FetchFailed, BadSpec) as error:
        raise NotPublished(error.message) from error
    return Destination(location=output_path.rstrip("/"), uri=output_path.rstrip("/"))


def _local(settings: Settings, project: str, output_path: str) -> Destination:
    named = local_path(output_path, field=FIELD) or ""
    path = output_directory(named, reading_rules(settings).of(project), field=FIELD)
    return Destination(location=path, uri=f"file://{quote(path)}")


def _in_volume(settings: Settings, project: str, output_path: str) -> str:
    directory = volumes_of(settings.fetch, output_path, project)
    if directory is None or not within(str(directory), str(settings.data.dir)):
        path, _ = claimed(settings.fetch, output_path, project)
        _refuse_own(settings, path)
        return path
    # No service is configured for it: the directory is created among the platform's own files.
    mode = CLAIM_MODE if scheme_of(output_path) == CLAIMS else _MODE
    directory.mkdir(mode, parents=True, exist_ok=True)
    (directory / volume(output_path).container).mkdir(mode, exist_ok=True)
    path, base = claimed(settings.fetch, output_path, project)
    if Path(base).parent != directory.resolve():
        raise NotPublished(OWN)
    return path


def _refuse_own(settings: Settings, path: str) -> None:
    own = [str(settings.data.dir), settings.storage.url.removeprefix("file://")]
    for each in (os.path.realpath(path) for path in own if Path(path).is_absolute()):
        if within(path, each) or within(each, path):
            raise NotPublished(OWN)


def _refuse_own_objects(settings: Settings, output_path: str) -> None:
    """The storage may be a bucket of the same service, which holds the results of every project."""
    if "://" not in settings.storage.url or scheme_of(settings.storage.url) == "file":
        return
    own, wanted = place(settings.storage.url), place(output_path)
    if own.container != wanted.container:
        return
    ours, theirs = own.path.strip("/"), wanted.path.strip("/")
    if not ours or within(theirs, ours) or within(ours, theirs):
        raise NotPublished(OWN)
