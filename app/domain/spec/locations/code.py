"""Code of one's own: a bundle that was uploaded, or a commit of a Git repository, instead of a directory.

Both are archives that a node unpacks, so a script in them is named relative to them.
"""

import posixpath
import re
from dataclasses import dataclass

from app.domain.errors import BadSpec
from app.domain.spec.locations.hosts import authority_of, check_host, refuse_private_host
from app.domain.spec.locations.uploads import SCHEME, is_upload

GIT = "git"  # the kind of location
GIT_SCHEME = "git+https"
FORM = "git+https://host/repository.git@<commit>, with #subdirectory=path if you like"
MOST_BYTES = 256 << 20  # of the files of a code bundle
MOST_FILES = 20_000
LONGEST_PATH = 1024  # bytes of a path in an archive of a directory
MOST_PARTS = 64  # names of such a path

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")  # and bytes that are no UTF-8
_COMMIT = re.compile(r"[0-9a-f]{40}")
_PATH = re.compile(r"(?:/[\w.~+-]+)+/?", re.ASCII)
_SUBDIRECTORY = re.compile(r"subdirectory=([\w.+-][\w.+ -]*(?:/[\w.+ -]+)*)/?", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class GitCommit:
    """``directory`` is the part of the repository that is the code; empty: all of it."""

    url: str
    commit: str
    directory: str = ""

    @property
    def origin(self) -> str:
        """`https://HOST`, with a port if the URL names one."""
        return f"https://{authority_of(self.url)}"

    @property
    def host(self) -> str:
        """With a port that is not 443."""
        return authority_of(self.url).lower().removesuffix(":443")


def is_git(location: str) -> bool:
    return location.lower().startswith("git+")


def is_bundle(location: str) -> bool:
    """Whether the code is an archive that a node unpacks."""
    return is_upload(location.removeprefix(SCHEME)) or is_git(location)


def check_bundle(location: str, allow: tuple[str, ...], *, field: str) -> None:
    """Refuse code of a repository that is not named by a commit, or is at a private address. Raises BadSpec."""
    if is_git(location):
        refuse_private_host(git_commit(location, field=field).url, allow, field=field)


def git_commit(location: str, *, field: str) -> GitCommit:
    """Raises BadSpec."""
    scheme, _, rest = location.partition("://")
    if scheme.lower() != GIT_SCHEME:
        raise BadSpec(f"{scheme[:32]}:// is not supported for code of a repository; the form is {FORM}", field=field)
    address, _, fragment = rest.partition("#")
    url, at, revision = f"https://{address}".rpartition("@")
    if "@" in url or (at and "/" not in url.removeprefix("https://")):
        raise BadSpec(
            "a URI holds no user or password, which all users of the project would see; put what opens a private "
            "repository into custom_code_credentials, which is stored encrypted",
            field=field,
        )
    if not at:
        raise _without_commit(address, "", field=field)
    if _COMMIT.fullmatch(revision) is None:
        raise _without_commit(address.rpartition("@")[0], revision, field=field)
    check_host(url, field=field)
    path = url.removeprefix(f"https://{authority_of(url)}")
    if _PATH.fullmatch(path) is None or ".." in path.split("/"):
        raise BadSpec(f"the URI is malformed; the form is {FORM}", field=field)
    return GitCommit(url=url, commit=revision, directory=_directory(fragment, field=field))


def can_be_shown(name: str) -> bool:
    """Whether a file's name has neither control characters nor bytes that are no UTF-8."""
    return _CONTROL.search(name) is None


def path_in_bundle(path: str) -> str:
    """A script's path in the code; empty for one that leads out of it."""
    found = posixpath.normpath(path)
    leads_out = found in ("", ".", "..") or found.startswith(("/", "../")) or "://" in path or "\\" in path
    return "" if leads_out else found


def _directory(fragment: str, *, field: str) -> str:
    if not fragment:
        return ""
    found = _SUBDIRECTORY.fullmatch(fragment)
    if found is None or {"", ".", ".."} & set(found[1].split("/")):
        raise BadSpec(f"what follows # is subdirectory=path, a directory of the repository; {FORM}", field=field)
    return found[1]


def _without_commit(address: str, revision: str, *, field: str) -> BadSpec:
    said = f"{revision[:60]!r} is no commit: a branch, a tag or a short id" if revision else "names no commit"
    asked = revision if re.fullmatch(r"[\w./-]{1,60}", revision) else "main"
    return BadSpec(
        f"{said}; a job runs one commit, named by its 40 hexadecimal digits. Find it with "
        f"`git ls-remote https://{address[:200]} {asked}`, or with `git rev-parse HEAD` in a clone; {FORM}",
        field=field,
    )
