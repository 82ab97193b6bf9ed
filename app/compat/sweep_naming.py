"""Names of fields in errors about translated sweeps, and the schema of the documents of their trials."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from app.compat.naming import Naming
from app.domain.spec.model import JobDocument
from app.http.errors import BadShape
from app.http.request_body import validated
from app.schemas.jobs import SubmitJobSchema

_DOCUMENT = SubmitJobSchema()
_JOB, _PARAMETERS = "job.", "parameters."


def complete(document: dict[str, Any]) -> JobDocument:
    """The typed document of a trial. Raises BadShape with fields of the sweep's `job`."""
    try:
        found: JobDocument = validated(_DOCUMENT, document)
    except BadShape as error:
        raise BadShape([(f"{_JOB}{name}", message) for name, message in error.details]) from error
    return found


@dataclass(frozen=True)
class SweepNaming(Naming):
    """Also translates fields of a sweep's document: those of its `job`, and ``parameters`` by their native names."""

    parameters: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def field(self, native: str) -> str:
        named = native.removeprefix(_PARAMETERS)
        # The longest first: a name may contain dots, and be the beginning of another.
        for name in sorted(self.parameters, key=len, reverse=True) if named != native else ():
            if f"{named}.".startswith(f"{name}."):
                return self.parameters[name] + named[len(name) :]
        return super().field(native.removeprefix(_JOB))


def naming_of(base: Naming, names: Mapping[str, str], above: str, parameters: Mapping[str, str]) -> SweepNaming:
    """``names``: fields of a sweep's document → the client's; ``parameters``: native names → the client's, which stand
    below the field ``above``.
    """
    return SweepNaming(
        {**base.names, **names},
        base.rest,
        words={**base.words, **parameters},
        holds_native=base.holds_native,
        parameters={native: f"{above}.{name}" for native, name in parameters.items()},
    )
