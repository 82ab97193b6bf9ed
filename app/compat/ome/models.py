"""Base models: checks, warnings, and the model's location for jobs."""

import posixpath
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from app.compat.ome import storages
from app.compat.ome.fields import MODEL_FIELDS
from app.compat.ome.places import place
from app.domain.errors import BadSpec
from app.domain.spec.locations.paths import check_model
from app.domain.spec.rules.mounts import why_not_free
from app.domain.spec.user_tokens import HEADERS
from app.http.context import plane
from app.schemas.spec.field_verdicts import refuse, warning, warnings_of
from app.services.kubernetes_objects import BASE_MODELS
from app.services.rows import Session

_LOCAL = "local://"  # OME's scheme for a directory of the nodes
_FIELD, _NAMED_BY = "spec.storage.storageUri", "spec.modelConfig.inputModel"


class LocatedModel(NamedTuple):
    """The location of a job's model, None without one, and the storage spec of its base model."""

    location: str | None
    storage: Mapping[str, Any] = MappingProxyType({})

    @property
    def path(self) -> str:
        """Where the model lies in the containers of OME's jobs; empty where the base model leaves that open."""
        return self.storage.get("path") or ""


def check(manifest: Mapping[str, Any]) -> list[str]:
    """The warnings of a manifest. Raises InvalidRequest for a base model that no job can use."""
    refuse(manifest, MODEL_FIELDS)
    location = _location_of(manifest["spec"])
    if not location:
        raise BadSpec("is required: the location of the model", field=_FIELD)
    check_model(location, plane().reading, field=_FIELD)
    if location.partition("://")[0].lower() in HEADERS.values():
        message = "needs the token of the user who submits a job, which a TrainingJob can't carry; use another location"
        raise BadSpec(message, field=_FIELD)
    storage = manifest["spec"]["storage"]
    found = warnings_of(manifest, MODEL_FIELDS) + storages.check(storage, "spec.storage")
    path = storage.get("path") or ""
    why = why_not_free(posixpath.normpath(path)) if path else ""
    return [*found, *([warning("spec.storage.path", f"{path} {why}")] if why else [])]


def located(session: Session, namespace: str, name: str | None) -> LocatedModel:
    """The base model of this name; another name is a directory, a model id of the hub, or a URI itself.

    Raises BadSpec for one that is disabled.
    """
    row = BASE_MODELS.find(session, namespace, name) if name else None
    if row is None:
        return LocatedModel(place(name) if name else None)
    if row.spec.get("disabled"):
        raise BadSpec(f"the base model {name} is disabled", field=_NAMED_BY)
    return LocatedModel(_location_of(row.spec), row.spec["storage"])


def _location_of(spec: Mapping[str, Any]) -> str:
    return place(((spec.get("storage") or {}).get("storageUri") or "").removeprefix(_LOCAL))
