"""How one place is opened: fields beside a data source, the base model and the output."""

import re
from collections.abc import Mapping

from app.domain.spec.credentials import KEYS, OPTION_KEYS, needed
from app.domain.spec.locations.code import GIT
from app.schemas.strict_fields import TextMap, says

_NAME = re.compile(r"[a-z_]{1,32}")  # no dots: dotted paths lead to each value
_RULE = "must be of small letters and underscores"
_LONGEST = 8192  # of a session token or headers


def _described(keys: Mapping[str, tuple[str, ...]]) -> str:
    kinds = dict.fromkeys(keys.values())
    return "; ".join(f"{'/'.join(kind for kind in keys if keys[kind] == each)}: {', '.join(each)}" for each in kinds)


_MASKED = "stored encrypted, shown as ***"
OF_PLACES = f"What opens this place alone, instead of the operator's; {_MASKED}. {_described(KEYS)}"
OF_CODE = (
    f"What opens the repository of custom_code_dir: {needed(GIT)}; {_MASKED}. Default: what the operator stores for "
    "the project and the repository's host"
)


class CredentialsField(TextMap):
    """Key → value, stored encrypted and shown as ``***``."""

    def __init__(self, text: str = OF_PLACES) -> None:
        super().__init__(keys=_NAME, rule=_RULE, most=8, longest=_LONGEST, **says(text))


class StorageOptions(TextMap):
    """Key → value, shown as it is."""

    def __init__(self) -> None:
        super().__init__(
            keys=_NAME,
            rule=_RULE,
            most=8,
            longest=1024,
            **says(f"Where the service of this place is, if not where the operator says. {_described(OPTION_KEYS)}"),
        )
