"""The digests of inputs that a manifest records: ranks have written it, so its form is checked."""

from collections.abc import Mapping
from typing import Any

SOURCES, WEIGHTS = "sources_sha256", "weights_sha256"  # in Manifest.data_position


def digests_in(position: Mapping[str, Any]) -> tuple[str, ...] | None:
    """In the order of data_config.sources, "" for one that is not known; empty where none is recorded. None: what is
    recorded is no list of texts.
    """
    found = position.get(SOURCES, [])
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        return None
    return tuple(found)
