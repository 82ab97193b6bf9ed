"""Run:ai's `security` → the user of a native job, and whether its image's files can be written. Pure."""

from collections.abc import Mapping
from typing import Any

from app.domain.errors import BadSpec
from app.schemas.spec.field_verdicts import warning

_FIELD = "spec.security"
# (field, value) → why it has no effect.
_WITHOUT_EFFECT: Mapping[tuple[str, Any], str] = {
    ("uidGidSource", "fromIdpToken"): "tokens of users have no user ID here: set custom and runAsUid",
    ("seccompProfileType", "Unconfined"): "the system calls of every job are filtered",
    ("seccompProfileType", "Localhost"): "the system calls of every job are filtered, as with RuntimeDefault",
    ("hostIpc", True): "a job has its own, which its ranks on a node share",
    ("hostNetwork", True): "a job on one node has a network of its own",
}
_FROM_THE_IMAGE = "fromTheImage"


def user_of(security: Mapping[str, Any], warnings: list[str]) -> dict[str, Any]:
    """The field ``user`` of ``resource_config``, if there is one. Raises BadSpec."""
    for (name, value), why in _WITHOUT_EFFECT.items():
        if security.get(name) == value:
            warnings.append(warning(f"{_FIELD}.{name}", f"{value if isinstance(value, str) else 'true'}: {why}"))
    if security.get("allowPrivilegeEscalation"):
        raise BadSpec(
            "true is not possible: no program of a job gains permissions; leave it out",
            field=f"{_FIELD}.allowPrivilegeEscalation",
        )
    given = {"uid": security.get("runAsUid"), "gid": security.get("runAsGid")}
    found = {name: value for name, value in given.items() if value is not None}
    if not found:
        return {}
    if security.get("uidGidSource") == _FROM_THE_IMAGE:
        warnings += [
            warning(f"{_FIELD}.{name}", "uidGidSource is fromTheImage: set custom")
            for name in ("runAsUid", "runAsGid")
            if security.get(name) is not None
        ]
        return {}
    return {"user": {**found, "required": False}}


def read_only_of(security: Mapping[str, Any], image: Mapping[str, Any], warnings: list[str]) -> dict[str, Any]:
    """The field ``read_only`` of ``image``, where there is an image."""
    asked = security.get("readOnlyRootFilesystem")
    if asked is False and not image:
        warnings.append(warning(f"{_FIELD}.readOnlyRootFilesystem", "false: without an image the root is read-only"))
    return {"image": {**image["image"], "read_only": True}} if asked and image else {}
