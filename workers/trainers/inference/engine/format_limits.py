"""How large a response format may be whose steps are shared with other requests."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from workers.trainers.failures import InvalidConfig

MOST_BYTES = 16 << 10  # of a schema as JSON
MOST_ALTERNATIVES = 64  # of a schema together: what a mask takes grows with their cube
_LISTS = ("anyOf", "oneOf", "allOf", "type")


def check_size(response_format: Mapping[str, Any]) -> None:
    """Raises InvalidConfig."""
    size = len(json.dumps(response_format).encode())
    if size > MOST_BYTES:
        raise InvalidConfig(
            f"response_format has {size} bytes, and a service takes at most {MOST_BYTES}; simplify the schema"
        )
    alternatives = sum(_alternatives(response_format))
    if alternatives > MOST_ALTERNATIVES:
        raise InvalidConfig(
            f"response_format has {alternatives} alternatives ({', '.join(_LISTS)}) beyond the first ones and null, "
            f"and a service takes at most {MOST_ALTERNATIVES}; simplify the schema"
        )


def _alternatives(value: object) -> Iterator[int]:
    """Of each list those beyond one; null is not counted, for it makes optional what is none."""
    members = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    for found in (value.get(name) for name in _LISTS) if isinstance(value, Mapping) else ():
        if isinstance(found, list):
            yield max(0, sum(each not in ("null", {"type": "null"}) for each in found) - 1)
    for member in members:
        yield from _alternatives(member)
