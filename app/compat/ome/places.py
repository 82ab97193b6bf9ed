"""Places of models, data and code: OME's forms of them, and what is said of data. Pure."""

import re
from collections.abc import Mapping
from typing import Any

from app.domain.errors import BadSpec
from app.domain.spec.data.formats import COMPRESSIONS, FORMATS

_BUCKET_FORM = re.compile(r"oci://n/([^/]+)/b/([^/]+)/o/(.+)")
OF_DATA = ("format", "compression")  # parameters that say what the data is, not where
KEYS = ("storageKey", "key")  # which name a secret with the credentials of a storage
_SUFFIXES = {"none": "", "gzip": ".gz", "gz": ".gz", "zstd": ".zst", "zst": ".zst"}
_PARAMETERS = "spec.datasets.parameters"


def place(uri: str) -> str:
    """`oci://n/NAMESPACE/b/BUCKET/o/OBJECT` is `oci://BUCKET/OBJECT`; all others are what they are."""
    found = _BUCKET_FORM.fullmatch(uri)
    return f"oci://{found[2]}/{found[3]}" if found else uri


def namespace_of(uri: str) -> str:
    """The NAMESPACE of that form; empty for all others."""
    found = _BUCKET_FORM.fullmatch(uri)
    return found[1] if found else ""


def source_of(datasets: Mapping[str, Any], *, runs_command: bool) -> list[dict[str, Any]]:
    """The native sources of the data: one, or none. A command reads its data as it likes. Raises BadSpec."""
    uri, parameters = datasets.get("storageUri"), datasets.get("parameters") or {}
    data_format = _word(parameters, "format", FORMATS)
    _refuse_other_compression(uri or "", _word(parameters, "compression", tuple(_SUFFIXES)))
    if not uri:
        return []
    return [{"path": place(uri), **({"format": data_format} if data_format and not runs_command else {})}]


def _word(parameters: Mapping[str, Any], name: str, known: tuple[str, ...]) -> str:
    said = parameters.get(name)
    if said is None:
        return ""
    if not isinstance(said, str) or said.lower() not in known:
        raise BadSpec(f"must be one of {', '.join(known)}", field=f"{_PARAMETERS}.{name}")
    return said.lower()


def _refuse_other_compression(uri: str, said: str) -> None:
    """Files are unpacked by what is in them, so nothing is to be done but to refuse what contradicts their name."""
    name = uri.partition("?")[0].lower()
    of_name = next((each for each in COMPRESSIONS if name.endswith(each)), None)
    if said and of_name is not None and _SUFFIXES[said] != of_name:
        raise BadSpec(
            f"is {said}, but the name of the file ends with {of_name}; leave one of them out",
            field=f"{_PARAMETERS}.compression",
        )
