"""Locations of models, data and code in OME's forms, and the parameters of data. Pure."""

import re
from collections.abc import Mapping
from typing import Any

from app.compat.mounts import OPTIONAL, Mount, mount_of_data, native_mounts
from app.domain.errors import BadSpec
from app.domain.spec.data.formats import COMPRESSIONS, FORMATS
from app.domain.spec.model import OUTPUT

_BUCKET_FORM = re.compile(r"oci://n/([^/]+)/b/([^/]+)/o/(.+)")
OF_DATASETS, OF_OUTPUT = "spec.datasets", "spec.modelConfig.outputModel"
OF_DATA = ("format", "compression")  # parameters of the data, not of its location
KEYS = ("storageKey", "key")  # fields with the name of a secret for the storage
_SUFFIXES = {"none": "", "gzip": ".gz", "gz": ".gz", "zstd": ".zst", "zst": ".zst"}
_PARAMETERS = "spec.datasets.parameters"


def place(uri: str) -> str:
    """`oci://n/NAMESPACE/b/BUCKET/o/OBJECT` becomes `oci://BUCKET/OBJECT`; other URIs are unchanged."""
    found = _BUCKET_FORM.fullmatch(uri)
    return f"oci://{found[2]}/{found[3]}" if found else uri


def namespace_of(uri: str) -> str:
    """The NAMESPACE of `oci://n/NAMESPACE/b/BUCKET/o/OBJECT`; empty for other URIs."""
    found = _BUCKET_FORM.fullmatch(uri)
    return found[1] if found else ""


def source_of(datasets: Mapping[str, Any], *, runs_command: bool) -> list[dict[str, Any]]:
    """The native data sources: one, or none. The format is for built-in trainers only. Raises BadSpec."""
    uri, parameters = datasets.get("storageUri"), datasets.get("parameters") or {}
    data_format = _choice(parameters, "format", FORMATS)
    _refuse_other_compression(uri or "", _choice(parameters, "compression", tuple(_SUFFIXES)))
    if not uri:
        return []
    return [{"path": place(uri), **({"format": data_format} if data_format and not runs_command else {})}]


def places_with_paths(spec: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The data and the output of a job by their fields, as far as they are to lie at a path of containers."""
    found = {
        OF_DATASETS: spec.get("datasets") or {},
        OF_OUTPUT: (spec.get("modelConfig") or {}).get("outputModel") or {},
    }
    return {field: place for field, place in found.items() if place.get("path")}


def mounts_of(spec: Mapping[str, Any], *, runs_command: bool) -> dict[str, Any]:
    """The field ``mounts`` of ``resource_config``, which is for commands."""
    places = places_with_paths(spec)
    data, output = places.get(OF_DATASETS, {}), places.get(OF_OUTPUT, {})
    found = [mount_of_data(data["path"], data["storageUri"], 0)] if data.get("storageUri") else []
    found += [Mount(output["path"], "", "", {"type": OUTPUT, **OPTIONAL})] if output else []
    return native_mounts(found) if runs_command else {}


def _choice(parameters: Mapping[str, Any], name: str, known: tuple[str, ...]) -> str:
    value = parameters.get(name)
    if value is None:
        return ""
    if not isinstance(value, str) or value.lower() not in known:
        raise BadSpec(f"must be one of {', '.join(known)}", field=f"{_PARAMETERS}.{name}")
    return value.lower()


def _refuse_other_compression(uri: str, compression: str) -> None:
    """Raises BadSpec if the compression contradicts the file name; readers detect it from the content."""
    name = uri.partition("?")[0].lower()
    of_name = next((each for each in COMPRESSIONS if name.endswith(each)), None)
    if compression and of_name is not None and _SUFFIXES[compression] != of_name:
        raise BadSpec(
            f"is {compression}, but the file name ends with {of_name}; remove one of them",
            field=f"{_PARAMETERS}.compression",
        )
