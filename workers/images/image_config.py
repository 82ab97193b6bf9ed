"""What an image says of the programs that run in it.

Format: https://github.com/opencontainers/image-spec/blob/v1.1.0/config.md.
"""

import hashlib
import json
import platform
import posixpath
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from workers.attempt_failed import AttemptFailed
from workers.sandbox.accounts import GROUP, MOST_ID, PASSWD, image_lines, numbered
from workers.sandbox.spec import Account

_MOST_BYTES = 4 << 20  # as registries limit manifests
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, kw_only=True)
class ImageConfig:
    """``user`` is USER[:GROUP], by name or number, as written in the image."""

    environment: Mapping[str, str] = field(default_factory=dict)
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    directory: str = ""
    user: str = ""

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "ImageConfig":
        """Of ``to_document``."""
        lists = {name: tuple(document[name]) for name in ("entrypoint", "command")}
        return cls(**{**document, **lists})

    def to_document(self) -> dict[str, Any]:
        return asdict(self)

    def account(self, root: Path) -> Account:
        """The user that the image names; the sandbox's own where it names none, or root. Raises AttemptFailed."""
        name, _, group = self.user.partition(":")
        if name in ("", "0", "root"):
            return Account()
        users, groups = image_lines(root, PASSWD), image_lines(root, GROUP)
        entry = numbered(users, int(name)) if name.isdecimal() else _named(users, name)
        uid = name if name.isdecimal() else (entry[2] if entry else "")
        gid = group or (entry[3] if len(entry) > 3 else uid)
        if not gid.isdecimal():
            found = _named(groups, gid)
            gid = found[2] if found else ""
        if not (uid.isdecimal() and gid.isdecimal() and 0 < int(uid) <= MOST_ID and int(gid) <= MOST_ID):
            raise AttemptFailed(
                "INVALID_CONFIG",
                f"resource_config.image: its user is {self.user}, whom its /etc/passwd and /etc/group do not name; "
                "name one that they do, or a number, when the image is built",
            )
        return Account(name=entry[0] if entry else f"user{uid}", uid=int(uid), gid=int(gid))


def copied_digest(layout: Path) -> str:
    """64 hex digits of the manifest of the only image of an OCI layout. Raises AttemptFailed."""
    try:
        described = _json(layout / "index.json")["manifests"][0]["digest"]
        return hashlib.sha256(_blob_path(layout, described).read_bytes()).hexdigest()
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise AttemptFailed(
            "INVALID_CONFIG", f"resource_config.image: its description can't be read: {error}"
        ) from error


def read_config(layout: Path) -> ImageConfig:
    """Of the only image of an OCI layout. Raises AttemptFailed for what does not run here."""
    try:
        index = _json(layout / "index.json")
        manifest = _blob(layout, index["manifests"][0]["digest"])
        image = _blob(layout, manifest["config"]["digest"])
        system, machine = image.get("os", ""), image.get("architecture", "")
        config = image.get("config") or {}
        directory, user = _words([config.get("WorkingDir") or "", config.get("User") or ""])
        found = ImageConfig(
            environment=dict(each.split("=", 1) for each in _words(config.get("Env")) if "=" in each),
            entrypoint=_words(config.get("Entrypoint")),
            command=_words(config.get("Cmd")),
            directory=posixpath.normpath(f"/{directory.lstrip('/')}") if directory else "",
            user=user,
        )
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise AttemptFailed(
            "INVALID_CONFIG", f"resource_config.image: its description can't be read: {error}"
        ) from error
    here = _MACHINES.get(platform.machine(), platform.machine())
    if (system, machine) != ("linux", here):
        raise AttemptFailed(
            "INVALID_CONFIG",
            f"resource_config.image: it is for {system or '?'}/{machine or '?'}, and this node is linux/{here}; name "
            "an image for this platform",
        )
    return found


def _words(value: object) -> tuple[str, ...]:
    """Raises ValueError for what a program cannot be started with."""
    words = tuple(value) if isinstance(value, list) else () if value is None else (value,)
    for word in words:
        if not isinstance(word, str) or "\0" in word:
            raise ValueError(f"{word!r} is no text of a command line or an environment")
    return words


def _blob(layout: Path, digest: str) -> dict[str, Any]:
    return _json(_blob_path(layout, digest))


def _blob_path(layout: Path, digest: str) -> Path:
    algorithm, _, value = digest.partition(":")
    if not (algorithm.isalnum() and value.isalnum()):
        raise ValueError(f"{digest} is no digest")
    return layout / "blobs" / algorithm / value


def _json(path: Path) -> dict[str, Any]:
    if path.stat().st_size > _MOST_BYTES:
        raise ValueError(f"{path.name} is larger than {_MOST_BYTES} bytes")
    document: dict[str, Any] = json.loads(path.read_bytes())
    return document


def _named(lines: list[str], name: str) -> list[str]:
    return next((entry for entry in (line.split(":") for line in lines) if entry[0] == name and len(entry) > 2), [])
