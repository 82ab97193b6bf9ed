"""Which words of an answer only clients of the native API can know."""

import re

from app.compat.modelarts.requests import CreateSchema
from app.schemas.jobs import SubmitJobSchema
from app.schemas.spec.field_verdicts import field_paths
from tests.integration.compat.test_cyxwiz import CONFIG

# What clients of CyxWiz write themselves, as parts of a native document.
_WITHIN = re.compile(r"\bmodel_config\.[\w.]+")
_NATIVE = {part for path in field_paths(SubmitJobSchema()) for part in path.split(".") if "_" in part}
_THEIRS = {
    "cyxwiz": {*CONFIG, "min_memory_mb", "timeout_seconds", "max_output_size_mb", "required_device"},
    "modelarts": {part for path in field_paths(CreateSchema()) for part in path.split(".")} | {"base_model"},
    "ome": set[str](),
    "runai": set[str](),
}


def native_names_in(text: str, vocabulary: str) -> set[str]:
    """Of fields that its clients don't have."""
    if vocabulary == "cyxwiz":
        text = _WITHIN.sub("", text)
    return (_NATIVE - _THEIRS[vocabulary]) & {*re.findall(r"\w+", text)}
