"""Operations on objects of all kinds: identity, patches, preconditions, and metadata as it is stored."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from app.compat.ome.api import patches
from app.compat.ome.api.bodies import OPERATIONS
from app.compat.ome.dialect import ALREADY_EXISTS, API_VERSION
from app.domain.errors import Conflict, InvalidRequest
from app.domain.spec.secrets import MASK, is_secret

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
_VERSION = "/metadata/resourceVersion"
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"  # the manifest that kubectl apply sent


class AlreadyExists(Conflict):
    """An object of that name exists."""

    code = ALREADY_EXISTS


def check_identity(manifest: Mapping[str, Any], kind: str, namespace: str, name: str) -> None:
    """Raises InvalidRequest unless the object is that of the path; ``namespace`` is empty for a cluster-scoped one."""
    if manifest["apiVersion"] != API_VERSION or manifest["kind"] != kind:
        raise InvalidRequest(f"must be {kind} of {API_VERSION}", field="kind")
    metadata = manifest["metadata"]
    if metadata.get("name") != name:
        raise InvalidRequest("must be the name of the path", field="metadata.name")
    if (metadata.get("namespace") or namespace) != namespace:
        raise InvalidRequest("must be the namespace of the path, or left out", field="metadata.namespace")


def apply_patch(current: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """The patched object; without resourceVersion unless the patch names one."""
    steps = patch.get(OPERATIONS)
    patched = patches.merged(current, patch) if steps is None else patches.patched(current, steps)
    if not isinstance(patched.get("metadata"), dict):
        raise InvalidRequest("must be an object", field="metadata")
    if not _names_version(patch, steps):
        patched["metadata"].pop("resourceVersion", None)
    return patched


def _names_version(patch: Mapping[str, Any], steps: Sequence[Mapping[str, Any]] | None) -> bool:
    """Whether the patch sets or tests the resourceVersion of the object."""
    if steps is not None:
        return any(_VERSION.startswith(step["path"].rstrip("/")) for step in steps)
    metadata = patch.get("metadata")
    return isinstance(metadata, Mapping) and "resourceVersion" in metadata


def check_name(document: Mapping[str, Any], name: str) -> None:
    """Raises InvalidRequest unless an applied object has the name of the path."""
    metadata = document.get("metadata")
    if isinstance(metadata, Mapping) and metadata and metadata.get("name") != name:
        raise InvalidRequest("must be the name of the path", field="metadata.name")


def is_dry_run(options: Mapping[str, Any], current: Mapping[str, Any]) -> bool:
    """Whether a DELETE with these options is a dry run. Raises Conflict for a precondition that does not hold."""
    for name, wanted in (options.get("preconditions") or {}).items():
        if wanted is not None and current["metadata"].get(name) != wanted:
            raise Conflict(f"the object's {name} is not {wanted!s:.64}")
    return bool(options.get("dryRun"))


def with_changes(current: Mapping[str, Any], spec: Mapping[str, Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The object as a change leaves it, except for resourceVersion."""
    return {**current, "metadata": {**current["metadata"], **metadata}, "spec": dict(spec)}


def stored_metadata(metadata: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Labels and annotations; secrets are masked in the manifest that kubectl stores as an annotation."""
    annotations = dict(metadata.get("annotations") or {})
    if _APPLIED in annotations:
        annotations[_APPLIED] = _masked(annotations[_APPLIED])
    return {"labels": dict(metadata.get("labels") or {}), "annotations": annotations}


def secret_variables(part: object, path: str = "") -> Iterator[str]:
    """Paths of environment variables with a secret value, at any depth."""
    for name, value in _variables(part, path):
        if value.get("value") not in (None, "", MASK) and is_secret(str(value["name"]), str(value["value"])):
            yield name


def _masked(manifest: str) -> str:
    """Raises InvalidRequest for a manifest that is not JSON, as its secrets can't be found."""
    try:
        document = json.loads(manifest)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest("must be JSON", field=f"metadata.annotations.{_APPLIED}") from error
    for _, variable in _variables(document, ""):
        if is_secret(str(variable["name"]), str(variable.get("value", ""))):
            variable["value"] = MASK
    return json.dumps(document, separators=(",", ":")) + "\n" * manifest.endswith("\n")


def _variables(part: object, path: str) -> Iterator[tuple[str, Any]]:
    """Each element with a name of each list ``env``, with its path."""
    inner = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for key, value in inner:
        here = f"{path}.{key}".removeprefix(".")
        if key == "env" and isinstance(value, list):
            yield from (
                (f"{here}.{i}", each) for i, each in enumerate(value) if isinstance(each, dict) and "name" in each
            )
        else:
            yield from _variables(value, here)
