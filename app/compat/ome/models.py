"""Base models: the place that one names for jobs, and what of its description has no effect."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from app.compat.ome.fields import MODEL_FIELDS
from app.compat.ome.places import place
from app.domain.errors import BadSpec
from app.domain.locations import check_model
from app.http.context import plane
from app.schemas.field_verdicts import refuse, warnings_of
from app.services.manifests import BASE_MODELS

_LOCAL = "local://"  # how OME names a directory of the nodes
_FIELD = "spec.storage.storageUri"


def check(wanted: Mapping[str, Any]) -> list[str]:
    """The warnings of a manifest. Raises InvalidRequest when no job could begin with it."""
    refuse(wanted, MODEL_FIELDS)
    location = _location_of(wanted["spec"])
    if not location:
        raise BadSpec("is needed: it says where the model is", field=_FIELD)
    check_model(location, plane().reading, field=_FIELD)
    return warnings_of(wanted, MODEL_FIELDS)


def located(session: Session, namespace: str, name: str | None) -> str | None:
    """Where the base model of this name is; what names none is a directory, an id of a hub, or a URI itself.

    Raises BadSpec for one that is disabled.
    """
    row = BASE_MODELS.find(session, namespace, name) if name else None
    if row is None:
        return place(name) if name else None
    if row.spec.get("disabled"):
        raise BadSpec(f"the base model {name} is disabled", field="spec.modelConfig.inputModel")
    return _location_of(row.spec)


def _location_of(spec: Mapping[str, Any]) -> str:
    return place((spec["storage"].get("storageUri") or "").removeprefix(_LOCAL))
