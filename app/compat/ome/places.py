"""Locations of models, data and code in OME's forms, and the parameters of data. Pure."""

import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from app.compat.mounts import OPTIONAL, ContainerMount, mount_of_data, native_mounts
from app.domain.errors import BadSpec
from app.domain.spec.data.formats import COMPRESSIONS, FORMATS
from app.domain.spec.model import MODEL, OUTPUT

_BUCKET_FORM = re.compile(r"oci://n/([^/]+)/b/([^/]+)/o/(.+)")
OF_DATASETS, OF_OUTPUT = "spec.datasets", "spec.modelConfig.outputModel"
OF_MODEL = "spec.modelConfig.inputModel"
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


class PlacedModel(NamedTuple):
    """The location of a job's model, None without one, and where it is to lie; empty where that is left open."""

    location: str | None = None
    path: str = ""


NOT_LOCATED = PlacedModel()


def source_of(datasets: Mapping[str, Any], *, runs_command: bool) -> list[dict[str, Any]]:
    """The native data sources: one, or none. The format is for built-in trainers only. Raises BadSpec."""
    uri, parameters = datasets.get("storageUri"), datasets.get("parameters") or {}
    data_format = _choice(parameters, "format", FORMATS)
    _refuse_other_compression(uri or "", _choice(parameters, "compression", tuple(_SUFFIXES)))
    if not uri:
        return []
    return [{"path": place(uri), **({"format": data_format} if data_format and not runs_command else {})}]


def places_with_paths(spec: Mapping[str, Any], model_path: str) -> dict[str, Mapping[str, Any]]:
    """The data, the output and the base model of a job by their fields, as far as they are to lie at a path of
    containers.
    """
    found = {
        OF_DATASETS: spec.get("datasets") or {},
        OF_OUTPUT: (spec.get("modelConfig") or {}).get("outputModel") or {},
        OF_MODEL: {"path": model_path},
    }
    return {field: place for field, place in found.items() if place.get("path")}


def mounts_of(
    spec: Mapping[str, Any], model_path: str, volumes: Sequence[ContainerMount], *, runs_command: bool
) -> dict[str, Any]:
    """The field ``mounts`` of ``resource_config``, which is for commands: the job's places, and those of these volumes
    of its runtime that lie elsewhere. Raises BadSpec for two at one path.
    """
    if not runs_command:
        return {}
    places = places_with_paths(spec, model_path)
    _refuse_two_at_a_path(places)
    data, output = places.get(OF_DATASETS, {}), places.get(OF_OUTPUT, {})
    found = [mount_of_data(data["path"], data["storageUri"], 0)] if data.get("storageUri") else []
    found += [ContainerMount(output["path"], "", "", {"type": OUTPUT, **OPTIONAL})] if output else []
    found += [ContainerMount(model_path, "", "", {"type": MODEL, **OPTIONAL})] if model_path else []
    return native_mounts([*found, *volumes])


def _refuse_two_at_a_path(places: Mapping[str, Mapping[str, Any]]) -> None:
    seen: dict[str, str] = {}
    for field, each in places.items():
        path = posixpath.normpath(each["path"])
        if (other := seen.setdefault(path, field)) != field:
            what = "the base model" if field == OF_MODEL else field
            raise BadSpec(f"{what} is to lie at {path}, too; name another path", field=f"{other}.path")


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
