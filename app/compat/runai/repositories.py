"""A Git volume with a commit → the code of the job, which nodes clone, and the secret that opens it. Pure."""

import posixpath
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from app.compat.mounts import OPTIONAL, ContainerMount
from app.domain.errors import BadSpec
from app.domain.spec.credentials import PASSWORD, USER
from app.domain.spec.locations.code import git_commit
from app.domain.spec.model import CODE
from app.domain.spec.rules.mounts import why_not_free
from app.schemas.spec.field_verdicts import warning
from app.services.access.secret_files import Reference

REPOSITORIES = "spec.storage.git"
_CODE = "$(TRAINYARD_RUN_DIR)/code"
_SSH_KEY = "ssh-key"
_NOT_CLONED = (
    "one repository of a workload is cloned, where revision is a commit, by its 40 digits, repository an address "
    "https://, and workingDir in it or not set"
)
_OF_CLONES = ("branch", "revision", "passwordSecret", "secretKeyOfUser", "secretKeyOfPassword", "secretRef")


class Repository(NamedTuple):
    """``number`` of the volume; ``login``: key of the job's credentials → the key of a secret."""

    number: int
    location: str
    mount: ContainerMount
    login: Mapping[str, Reference]

    def directory(self, working: str | None) -> str | None:
        """Where commands start, if not in the code itself."""
        below = posixpath.relpath(working, self.mount.mounted) if working else "."
        return None if below == "." else f"{self.mount.reference}/{below}"


def repository_of(spec: Mapping[str, Any]) -> Repository | None:
    """The first volume that can be the job's code: a commit, with the working directory in it, if that is set.

    Raises BadSpec.
    """
    working = spec.get("workingDir")
    for number, each in enumerate((spec.get("storage") or {}).get("git") or []):
        location, mounted = _location(each), posixpath.normpath(str(each.get("path") or ""))
        if each.get("exclude") or not location or why_not_free(mounted):
            continue
        if not working or f"{posixpath.normpath(working)}/".startswith(f"{mounted}/"):
            mount = code_mount(mounted, _CODE)
            return Repository(number, location, mount, _login(each, f"{REPOSITORIES}.{each.get('name', number)}"))
    return None


def code_mount(mounted: str, reference: str = "") -> ContainerMount:
    """The mount of the job's code."""
    return ContainerMount(mounted, "", reference, {"type": CODE, **OPTIONAL})


def not_cloned(spec: Mapping[str, Any], repository: Repository | None) -> Iterator[str]:
    """A warning for each field that has no effect, as its repository is not cloned."""
    volumes = (spec.get("storage") or {}).get("git") or []
    cloned = repository.number if repository else None
    others = [each for number, each in enumerate(volumes) if number != cloned and not each.get("exclude")]
    for name in _OF_CLONES:
        if any(each.get(name) for each in others):
            yield warning(f"{REPOSITORIES}.{name}", _NOT_CLONED)


def _location(volume: Mapping[str, Any]) -> str:
    """The commit; empty where the volume names none that is to be cloned."""
    location = f"git+{volume.get('repository') or ''}@{volume.get('revision') or ''}"
    try:
        git_commit(location, field="")
    except BadSpec:
        return ""
    return location


def _login(volume: Mapping[str, Any], field: str) -> dict[str, Reference]:
    """Raises BadSpec for a key of SSH."""
    secret = volume.get("secretRef") or {}
    if secret.get("authenticationMethod") == _SSH_KEY:
        raise BadSpec(
            "repositories are cloned by HTTPS; name a secret with a user and a token, and say password",
            field=f"{field}.secretRef.authenticationMethod",
        )
    name = secret.get("name") or volume.get("passwordSecret")
    if not name:
        return {}
    keys = {USER: ("secretKeyOfUser", "username"), PASSWORD: ("secretKeyOfPassword", "password")}
    return {
        part: Reference(name, secret.get(key) or volume.get(key) or usual, field) for part, (key, usual) in keys.items()
    }
