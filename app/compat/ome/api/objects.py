"""What all resources share: which object a manifest means, what a patch makes of it, and what is kept of it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from app.compat.ome.api import patches
from app.compat.ome.api.bodies import OPERATIONS
from app.compat.ome.dialect import ALREADY_THERE, API_VERSION
from app.domain.errors import Conflict, InvalidRequest
from app.domain.spec.secrets import MASK, is_secret

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
_VERSION = "/metadata/resourceVersion"
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"  # the whole manifest, as kubectl apply was given it


class Rehearsed(Exception):
    """Ends the transaction of a dry run: nothing is written. ``found`` is the object as it would have been."""

    def __init__(self, found: dict[str, Any]) -> None:
        super().__init__("a dry run")
        self.found = found


class AlreadyThere(Conflict):
    """There is an object of that name."""

    code = ALREADY_THERE


def refuse_other(wanted: Mapping[str, Any], kind: str, namespace: str, name: str) -> None:
    """`namespace` is empty for an object of the cluster. Raises InvalidRequest for another one than the path's."""
    if wanted["apiVersion"] != API_VERSION or wanted["kind"] != kind:
        raise InvalidRequest(f"must be {kind} of {API_VERSION}", field="kind")
    metadata = wanted["metadata"]
    if metadata.get("name") != name:
        raise InvalidRequest("must be the name of the path", field="metadata.name")
    if (metadata.get("namespace") or namespace) != namespace:
        raise InvalidRequest("must be the namespace of the path, or left out", field="metadata.namespace")


def changed_by(current: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Of the object; without its version unless the patch is meant for one."""
    steps = patch.get(OPERATIONS)
    wanted: dict[str, Any] = patches.merged(current, patch) if steps is None else patches.patched(current, steps)
    if not isinstance(wanted.get("metadata"), dict):
        raise InvalidRequest("must be an object", field="metadata")
    if not _names_version(patch, steps):
        wanted["metadata"].pop("resourceVersion", None)
    return wanted


def _names_version(patch: Mapping[str, Any], steps: Sequence[Mapping[str, Any]] | None) -> bool:
    """Whether the patch says, or tests, which version of the object it is meant for."""
    if steps is not None:
        return any(_VERSION.startswith(step["path"].rstrip("/")) for step in steps)
    metadata = patch.get("metadata")
    return isinstance(metadata, Mapping) and "resourceVersion" in metadata


def refuse_other_name(document: Mapping[str, Any], name: str) -> None:
    """Of what is applied under a path. Raises InvalidRequest."""
    metadata = document.get("metadata")
    if isinstance(metadata, Mapping) and metadata and metadata.get("name") != name:
        raise InvalidRequest("must be the name of the path", field="metadata.name")


def is_rehearsal(options: Mapping[str, Any], current: Mapping[str, Any]) -> bool:
    """Whether a DELETE with these options is a dry run. Raises Conflict when another object is meant."""
    for name, wanted in (options.get("preconditions") or {}).items():
        if wanted is not None and current["metadata"].get(name) != wanted:
            raise Conflict(f"the object's {name} is not {wanted!s:.64}")
    return bool(options.get("dryRun"))


def rehearsed(current: Mapping[str, Any], spec: Mapping[str, Any], kept: Mapping[str, Any]) -> dict[str, Any]:
    """The object as a change would leave it, but for its version."""
    return {**current, "metadata": {**current["metadata"], **kept}, "spec": dict(spec)}


def kept_of(metadata: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Labels and annotations, without the secrets of the manifest that kubectl puts among them."""
    annotations = dict(metadata.get("annotations") or {})
    if _APPLIED in annotations:
        annotations[_APPLIED] = _masked(annotations[_APPLIED])
    return {"labels": dict(metadata.get("labels") or {}), "annotations": annotations}


def secret_variables(part: Any, path: str = "") -> Iterator[str]:
    """Where variables of containers have a secret value, however deep."""
    for name, value in _variables(part, path):
        if value.get("value") not in (None, "", MASK) and is_secret(str(value["name"]), str(value["value"])):
            yield name


def _masked(manifest: str) -> str:
    """Raises InvalidRequest for what is no JSON: nobody could say what of it is secret."""
    try:
        document = json.loads(manifest)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest("must be JSON", field=f"metadata.annotations.{_APPLIED}") from error
    for _, variable in _variables(document, ""):
        if is_secret(str(variable["name"]), str(variable.get("value", ""))):
            variable["value"] = MASK
    return json.dumps(document, separators=(",", ":")) + "\n" * manifest.endswith("\n")


def _variables(part: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every element of a list named env that has a name, with the path to it."""
    inner = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for key, value in inner:
        here = f"{path}.{key}".removeprefix(".")
        if key == "env" and isinstance(value, list):
            yield from (
                (f"{here}.{i}", each) for i, each in enumerate(value) if isinstance(each, dict) and "name" in each
            )
        else:
            yield from _variables(value, here)
