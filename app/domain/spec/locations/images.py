"""References to container images: of a registry, as Docker writes them, or to a file or directory of a storage root.

The grammar of registries is that of https://github.com/distribution/reference.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from app.domain.errors import BadSpec

FIELD = "resource_config.image.reference"
REGISTRY = "docker"  # also what a reference without a transport has
LAYOUT = "oci"
LOCAL = (LAYOUT, "oci-archive", "docker-archive")
PULL_POLICIES = ALWAYS, IF_MISSING, NEVER = ("always", "if_missing", "never")

_DOCKER_HUB = "docker.io"
_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*(?::[0-9]+)?"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_NAMED = re.compile(
    rf"(?:(?P<host>{_HOST})/)?(?P<path>{_PART}(?:/{_PART})*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?",
    re.ASCII,
)
_REGISTRY = re.compile(_HOST, re.ASCII)
_PATH = re.compile(rf"{_PART}(?:/{_PART})*", re.ASCII)
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", re.ASCII)
LOCAL_IMAGES = "local"  # in the list of a project: images of the storage roots
SOURCE = re.compile(rf"{LOCAL_IMAGES}|(?=[^/]*[.:]|localhost(?:/|$)){_HOST}(?:/{_PART})*", re.ASCII)
SOURCE_RULE = (
    "must be a registry or a part of one, such as registry.example/team, or local for images of the storage roots"
)
MOST_SOURCES = 64


@dataclass(frozen=True, kw_only=True)
class ImageReference:
    """``name`` is HOST/REPOSITORY of a registry, else a path."""

    transport: str
    name: str
    tag: str = ""
    digest: str = ""

    def is_below(self, registry: str) -> bool:
        """Whether it is an image of this registry, HOST[:PORT], or of this repository or path in one."""
        return not self.is_local and _is_below(self.name, registry)

    @property
    def is_local(self) -> bool:
        return self.transport in LOCAL

    @property
    def host(self) -> str:
        """HOST[:PORT] of the registry; empty for a local one."""
        return "" if self.is_local else self.name.partition("/")[0]

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{self.transport}:{self.name}{tag}" if self.is_local else f"{self.name}{tag}{digest}"


def parse(text: str) -> ImageReference:
    """Raises BadSpec."""
    transport, separator, rest = text.partition(":")
    if separator and transport in LOCAL:
        return _local(transport, rest)
    named = text.removeprefix(f"{REGISTRY}://")
    found = _NAMED.fullmatch(named)
    host, path = (found["host"], found["path"]) if found is not None else (None, "")
    if host is not None and not ("." in host or ":" in host or host == "localhost"):  # as Docker completes names
        host, path = None, f"{host}/{path}"
    if found is None or not _PATH.fullmatch(path):
        raise BadSpec(
            f"{text} is no reference to an image: write REGISTRY/NAME:TAG or REGISTRY/NAME@sha256:DIGEST, in lower "
            f"case up to the tag, or {LAYOUT}:DIRECTORY, oci-archive:FILE or docker-archive:FILE of a storage root",
            field=FIELD,
        )
    host = host or _DOCKER_HUB
    if host == _DOCKER_HUB and "/" not in path:
        path = f"library/{path}"
    digest = found["digest"] or ""
    tag = found["tag"] or ("" if digest else "latest")
    return ImageReference(transport=REGISTRY, name=f"{host}/{path}", tag=tag, digest=digest)


def is_registry(text: str) -> bool:
    """Whether this is HOST[:PORT][/PATH] as references name it, of a registry or of a part of one."""
    host, _, path = text.partition("/")
    names_host = _REGISTRY.fullmatch(host) is not None and ("." in host or ":" in host or host == "localhost")
    return names_host and (path == "" if "/" not in text else _PATH.fullmatch(path) is not None)


def closest(reference: ImageReference, registries: Sequence[str]) -> int | None:
    """The index of the registry or path that the image lies in, of several the longest; None where it lies in none."""
    holding = [number for number, registry in enumerate(registries) if reference.is_below(registry)]
    return max(holding, key=lambda number: len(registries[number]), default=None)


def _local(transport: str, rest: str) -> ImageReference:
    path, separator, tag = rest.rpartition(":") if transport == LAYOUT and ":" in rest else (rest, "", "")
    if separator and not _TAG.fullmatch(tag):
        raise BadSpec(f"{tag} is no tag; write {LAYOUT}:DIRECTORY or {LAYOUT}:DIRECTORY:TAG", field=FIELD)
    if ":" in path or not path:  # of which the tools make something else
        raise BadSpec(f"write {transport}:PATH, with a path without colons", field=FIELD)
    return ImageReference(transport=transport, name=path, tag=tag)


def why_not_from(reference: ImageReference, sources: Sequence[str], *, require_digest: bool) -> str:
    """Why a job may not use an image of a registry, and the way out; empty where it may.

    ``sources`` are registries or repositories, with their parents' slashes.
    """
    if reference.is_local:
        return ""
    if not any(_is_below(reference.name, source) for source in sources):
        allowed = f"from {', '.join(sources)}" if sources else "in the storage roots alone (oci:DIRECTORY)"
        return (
            f"images are used {allowed}, and {reference.name} is not there; name another one, or have the "
            "administrator add it to TRAINYARD_IMAGES_SOURCES"
        )
    if require_digest and not reference.digest:
        return f"images are named with their digest here; write {reference.name}@sha256:DIGEST"
    return ""


def _is_below(name: str, source: str) -> bool:
    return f"{name}/".startswith(f"{source.rstrip('/')}/")


def why_not_of_project(reference: ImageReference, sources: Sequence[str], project: str, *, require_digest: bool) -> str:
    """Why jobs of a project may not use an image, and the way out; empty where they may.

    ``sources`` is the project's list, without entries for all that the installation allows.
    """
    is_listed = LOCAL_IMAGES in sources if reference.is_local else any(map(reference.is_below, sources))
    if sources and not is_listed:
        kept = "".join(f" --image-source {source}" for source in sources)
        return (
            f"jobs of project {project} may only use images from {', '.join(sources)}, and {reference} is not among "
            f"them; use one of those, or ask a super admin to run: trainyard projects change {project}{kept} "
            "--image-source REGISTRY/PATH"
        )
    if require_digest and not reference.is_local and not reference.digest:
        return f"project {project} requires a digest for images from registries; write {reference.name}@sha256:DIGEST"
    return ""
