"""Allowed locations of models, data and scripts: local paths below the roots, and URIs."""

import os.path
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from urllib.parse import unquote

from app.domain.errors import BadSpec, NotSupportedYet
from app.domain.spec.locations.hosts import refuse_private_host
from app.domain.spec.locations.uploads import UPLOAD, UPLOAD_DIRECTORIES, is_upload
from app.domain.spec.locations.uris import SCHEMES, Use, check_uri, leads_up, scheme_of
from app.domain.spec.quoting import quoted

__all__ = [
    "FILE",
    "KINDS",
    "NO_MODEL",
    "ReadingRules",
    "candidates",
    "check_code",
    "check_model",
    "check_output",
    "check_path",
    "check_script",
    "check_source",
    "is_hub_id",
    "job_of_path",
    "kind_of",
    "local_path",
    "output_directory",
    "readable",
    "refuse_private_host",
    "within",
]

FILE = "file"
NO_MODEL = "none"  # model_id of a CUSTOM job that brings its own model
KINDS = tuple(dict.fromkeys((FILE, *(scheme.kind for scheme in SCHEMES.values()), UPLOAD)))

_PROJECT = "{project}"
_MOST_LISTED = 8  # directories in a message
_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]+):")
_HUB_ID = re.compile(r"^[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?$", re.ASCII)
_NOT_IN_PATHS = re.compile(r"[\x00-\x1f\x7f\\]")


@dataclass(frozen=True, kw_only=True)
class ReadingRules:
    """What jobs may read. ``real_path`` resolves links where the caller can access the disk."""

    roots: tuple[str, ...]
    data_dir: str = ""  # the platform's own directory: only its ``files`` may be read
    storage_dir: str = ""  # storage of all projects' results; empty: in ``files``, or not on this disk
    output_roots: tuple[str, ...] = ()  # below which results may be written, {project} in them; empty: all roots
    claims_dir: str = ""  # volume claims, which belong to projects: only pvc:// leads there
    shared_claims: tuple[str, ...] = ()  # those of all projects
    writable_claims: tuple[str, ...] = ()  # of the shared ones, those that jobs may write to
    fetch_allow: tuple[str, ...] = ()
    tracking_allow: tuple[str, ...] = ()
    project: str = ""  # whose jobs these are, if that is known
    image_sources: tuple[str, ...] = ()  # registries and repositories of images, {project} in them
    image_digests: bool = False  # whether they are named with their digest
    packages: bool = True  # whether jobs may ask for packages
    knows_groups: bool = False  # whether an identity provider says in which groups people are
    real_path: Callable[[str], str] = os.path.normpath
    remembering_real_path: Callable[[], Callable[[str], str]] | None = None  # for `remembering`; None: a cache

    def of(self, project: str) -> "ReadingRules":
        """The rules for jobs of a project."""
        return _of_project(self, project)

    def remembering(self) -> "ReadingRules":
        """The rules for the checks of one document, which resolve each path once."""
        make = self.remembering_real_path
        rules = _OfOneDocument.__new__(_OfOneDocument)
        vars(rules).update(vars(self), real_path=make() if make is not None else cache(self.real_path))
        vars(rules).pop("places", None)
        return rules

    @property
    def places(self) -> "_Places":
        """Where the platform's directories are."""
        return _Places.of(self)


class _OfOneDocument(ReadingRules):
    """As `ReadingRules.remembering` says."""

    @cached_property
    def places(self) -> "_Places":
        return _Places.of(self)


@dataclass(frozen=True)
class _Places:
    """Directories with their links resolved."""

    roots: Sequence[str]
    data_dir: str
    results: Sequence[str]  # with one subdirectory of results per job
    uploads: Sequence[str]  # of all projects; what contains them contains results, too
    claims: str

    @classmethod
    def of(cls, rules: ReadingRules) -> "_Places":
        real = rules.real_path
        data_dir, claims = (real(each) if each else "" for each in (rules.data_dir, rules.claims_dir))
        stores = [f"{data_dir}/files"] if data_dir else []
        stores += [real(rules.storage_dir)] if rules.storage_dir else []
        uploads = [f"{store}/{name}" for store in stores for name in UPLOAD_DIRECTORIES]
        return cls(
            [real(root) for root in rules.roots], data_dir, [f"{store}/jobs" for store in stores], uploads, claims
        )


@lru_cache(maxsize=1024)
def _of_project(rules: ReadingRules, project: str) -> ReadingRules:
    return replace(
        rules,
        project=project,
        output_roots=tuple(root.replace(_PROJECT, project) for root in rules.output_roots),
        image_sources=tuple(source.replace(_PROJECT, project) for source in rules.image_sources),
    )


def check_source(location: str, rules: ReadingRules, *, field: str) -> None:
    """Refuse a data source that is malformed or not readable by jobs. Uploaded files are checked at submission."""
    if not is_upload(location):
        _check(location, Use.DATA, rules, field=field)


def check_model(model_id: str, rules: ReadingRules, *, field: str) -> None:
    """Refuse a base model that is neither a hub id nor an allowed location. Uploaded ones are checked at submission."""
    if not is_hub_id(model_id) and not is_upload(model_id):
        _check(model_id, Use.MODEL, rules, field=field)


def check_script(location: str, rules: ReadingRules, *, field: str) -> None:
    """Refuse a script that is not an allowed local file."""
    path = local_path(location, field=field)
    if path is None:
        scheme_of(location.partition(":")[0], field=field)
        raise NotSupportedYet("a script is a local file; put it below one of the storage roots", field=field)
    check_path(path, rules, field=field)


def check_code(location: str, rules: ReadingRules, *, field: str) -> None:
    """Refuse a code directory, or a script in it, at a location that is not allowed; URIs of storage are."""
    _check(location, Use.CODE, rules, field=field)


def check_output(location: str, rules: ReadingRules, *, field: str) -> None:
    """Refuse a location for results that is malformed or not writable by jobs."""
    path = local_path(location, field=field)
    if path is None:
        check_uri(location, Use.OUTPUT, rules.fetch_allow, field=field)
    else:
        _check_form(path, field=field)
        output_directory(path, rules, field=field)


def kind_of(location: str, *, field: str) -> str:
    """Kind of location: ``file``, ``upload``, or the kind of its URI's scheme."""
    if is_upload(location):
        return UPLOAD
    if local_path(location, field=field) is not None:
        return FILE
    return scheme_of(location.partition(":")[0], field=field).kind


def is_hub_id(model_id: str) -> bool:
    """Whether it has the form ``name`` or ``owner/name``; a relative directory may have that form, too."""
    return _HUB_ID.match(model_id) is not None and ".." not in model_id and not is_upload(model_id)


def local_path(location: str, *, field: str) -> str | None:
    """The path of a bare path or a ``file://`` URI; None for any other URI."""
    scheme = _SCHEME.match(location)
    if scheme is None:
        return location
    if scheme[1].lower() != "file":
        return None
    rest = location[len("file:") :]
    for prefix in ("///", "//localhost/"):
        if rest.startswith(prefix):
            return "/" + unquote(rest[len(prefix) :])
    raise BadSpec(
        f"{_shown(location)} is malformed; a file URI names an absolute path on this cluster: file:///directory/file",
        field=field,
    )


def candidates(path: str, rules: ReadingRules) -> Iterator[str]:
    """The absolute paths a local path may mean: itself, or below each root when it is relative."""
    if path.startswith("/"):
        yield rules.real_path(path)
    else:
        yield from (rules.real_path(os.path.join(root, path)) for root in rules.roots)  # noqa: PTH118 - text only


def check_path(path: str, rules: ReadingRules, *, field: str) -> None:
    """Refuse a path outside all roots. Existence is checked where the job runs."""
    _check_form(path, field=field)
    found = list(candidates(path, rules))
    if not any(readable(candidate, rules) for candidate in found):
        if reason := _refused_inside(path, found, rules):
            raise BadSpec(f"{_shown(path)} {reason}", field=field)
        raise BadSpec(
            f"{_shown(path)} lies outside every directory that jobs may read: {_listed(rules.roots)}; move the files "
            "below one of them, or have the administrator add the directory to TRAINYARD_STORAGE_ROOTS",
            field=field,
        )


def _refused_inside(path: str, found: Sequence[str], rules: ReadingRules) -> str:
    """Why a path that lies below a root can't be read; empty for one that lies below none."""
    if path.startswith("/") and any(within(real, root) for real in found for root in rules.places.roots):
        return (
            "is, or contains, a directory of the installation itself, with keys, uploads or the results of all "
            "projects, which jobs may not read; move the files to another directory below a storage root"
        )
    if any(within(os.path.normpath(path), os.path.normpath(root)) for root in rules.roots):
        return (
            "leads out of every directory that jobs may read, through a symbolic link; copy the files below a storage "
            "root, or have the administrator add the link's target to TRAINYARD_STORAGE_ROOTS"
        )
    return ""


def output_directory(path: str, rules: ReadingRules, *, field: str) -> str:
    """Absolute path for results: the first candidate below a root and outside the platform's own directories."""
    writing = replace(rules, roots=rules.output_roots or rules.roots)
    for candidate in candidates(path, writing):
        if _writable(candidate, writing):
            return candidate
    if rules.output_roots:
        raise BadSpec(
            f"{_shown(path)} is no place for results, which are written below "
            f"{' or '.join(rules.output_roots)}; name such a place, or have the "
            "administrator change TRAINYARD_STORAGE_OUTPUT_ROOTS",
            field=field,
        )
    raise BadSpec(
        f"{_shown(path)} is no place for results, which are written below one of the storage roots "
        f"({_listed(rules.roots)}), but not into the platform's own directory; name such a place, or have the "
        "administrator add one to TRAINYARD_STORAGE_ROOTS",
        field=field,
    )


def readable(real_path: str, rules: ReadingRules) -> bool:
    """Whether jobs may read this absolute path, with links resolved."""
    places = rules.places
    if not _is_in(real_path, places.roots):
        return False
    if any(within(each, real_path) for each in places.results):
        return False  # contains all projects' results
    if _holds_claims(real_path, places.claims) or _is_in(real_path, places.uploads):
        return False
    own = places.data_dir
    if not own:
        return True
    if within(own, real_path):
        return False  # contains keys
    if not within(real_path, own):
        return True
    return _is_in(real_path, [own + "/files", *(each for each in places.results if within(each, own))])


def _is_in(real_path: str, directories: Sequence[str]) -> bool:
    """As `within` of one of them."""
    return f"{real_path}/".startswith(tuple(f"{each.rstrip('/')}/" for each in directories))


def job_of_path(real_path: str, rules: ReadingRules) -> str | None:
    """Id of the job whose stored files contain the path, so that the caller can check the project."""
    for results in rules.places.results:
        if real_path.startswith(results + "/"):
            return real_path[len(results) + 1 :].split("/", 1)[0]
    return None


def _check(location: str, use: Use, rules: ReadingRules, *, field: str) -> None:
    path = local_path(location, field=field)
    if path is None:
        check_uri(location, use, rules.fetch_allow, field=field)
    else:
        check_path(path, rules, field=field)


def _check_form(path: str, *, field: str) -> None:
    if not path or _NOT_IN_PATHS.search(path) or path.startswith("~"):
        raise BadSpec(
            f"{_shown(path)} is no path that jobs can read: a path is absolute, or relative to one of the storage "
            "roots, without backslashes; ~ is not expanded",
            field=field,
        )
    if leads_up(path):
        raise BadSpec(f"{_shown(path)} leads up by ..; write it without", field=field)


def _shown(path: str) -> str:
    return quoted(path) or "the path"


def _listed(directories: tuple[str, ...]) -> str:
    more = f" and {len(directories) - _MOST_LISTED} more" if len(directories) > _MOST_LISTED else ""
    return (", ".join(directories[:_MOST_LISTED]) or "none") + more


def _writable(real_path: str, rules: ReadingRules) -> bool:
    """Whether results may be written to this absolute path, with links resolved."""
    places = rules.places
    if not _is_in(real_path, places.roots):
        return False
    own = [rules.real_path(each) for each in (rules.data_dir, rules.storage_dir) if each]
    return not _holds_claims(real_path, places.claims) and not any(
        within(real_path, each) or within(each, real_path) for each in own
    )


def _holds_claims(real_path: str, claims: str) -> bool:
    """Whether it is a volume claim or in one, or contains those of all projects."""
    return bool(claims) and (within(real_path, claims) or within(claims, real_path))


def within(path: str, directory: str) -> bool:
    """Whether an absolute path is the directory or below it; by text, with links resolved."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")
