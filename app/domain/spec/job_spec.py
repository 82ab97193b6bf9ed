"""The immutable job specification: a validated document with defaults filled in and secrets removed."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from app.domain.spec.credentials import CREDENTIALS, OPTIONS
from app.domain.spec.defaults import completed, completed_data
from app.domain.spec.document import is_custom
from app.domain.spec.locations.paths import ReadingRules
from app.domain.spec.model import JobDocument
from app.domain.spec.rules.job import check
from app.domain.spec.secrets import take_secrets
from app.domain.spec.user_tokens import PREFIX, require_tokens


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """``document`` is the stored one; ``secrets`` maps dotted paths to the values masked as ``***`` in it."""

    document: JobDocument
    secrets: Mapping[str, str]


def from_document(
    submitted: JobDocument,
    rules: ReadingRules,
    forwarded: Mapping[str, str] = MappingProxyType({}),
    *,
    secret_variables: Collection[str] = (),
) -> JobSpec:
    """Build the specification from a document that passed the schema; ``forwarded`` are the user's tokens.

    ``secret_variables`` of its environment are encrypted, whatever their names.

    Raises InvalidRequest, naming the field, for the first rule it breaks.
    """
    document = completed(submitted)
    check(document, rules)
    require_tokens(document, forwarded)
    document, secrets = take_secrets(document, secret_variables)
    secrets |= {PREFIX + name: token for name, token in forwarded.items()}
    return JobSpec(document=document, secrets=MappingProxyType(secrets))


def comparable_data(document: JobDocument) -> dict[str, Any]:
    """The ``data_config`` of a stored document with defaults filled in, however long ago it was stored.

    Without what opens the sources: renewed credentials make no other data.
    """
    data = completed_data(document.data_config, custom=is_custom(document))
    return data.changed(sources=tuple(source.without(CREDENTIALS, OPTIONS) for source in data.sources)).to_json()
