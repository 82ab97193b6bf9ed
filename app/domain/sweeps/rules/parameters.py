"""Which parameters a job may have: hyperparameters of its trainer, fields of its document, environment variables."""

import re
from collections.abc import Mapping
from typing import Any

from app.domain.errors import BadSpec
from app.domain.spec.document import is_custom, trainer
from app.domain.spec.hyperparameters.parameter import Hyperparameter, InvalidHyperparameter
from app.domain.spec.hyperparameters.tables import TABLES
from app.domain.spec.model import JobDocument
from app.domain.spec.rules.training import credentials_are_in_the_environment, is_reserved
from app.domain.spec.secrets import is_secret, unsigned
from app.domain.suggestions import did_you_mean
from app.domain.sweeps.documents import ENVIRONMENT, references, wire_text
from app.domain.sweeps.parameters import Parameter, Value
from app.domain.sweeps.rules.paths import FieldKind, kind_of
from app.domain.sweeps.space import Space, ends

_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def check_parameters(space: Space, job: Mapping[str, Any], document: JobDocument) -> None:
    """``document`` is the job as read, of which the trainer is known. Raises BadSpec."""
    for parameter in space.parameters:
        _no_secret_value(parameter)
        if parameter.name.startswith(ENVIRONMENT):
            _variable(parameter)
        elif "." in parameter.name:
            _field(parameter, kind_of(parameter.name, job))
        elif is_custom(document):
            _option(parameter)
        else:
            _hyperparameter(parameter, document)
    names = [parameter.name for parameter in space.parameters]
    for name, field in references(job):
        if name not in names:
            known = f"{', '.join(names)}{did_you_mean(name, names)}"
            raise BadSpec(f"$(sweep.{name:.80}) names no parameter; known: {known}", field=field)


def _no_secret_value(parameter: Parameter) -> None:
    for value in parameter.values:
        if isinstance(value, str) and (is_secret("", value) or unsigned(value) != value):
            raise BadSpec(
                "has an address with a password or a signature; values of a sweep are shown to everyone in its "
                "project: set credentials in job",
                field=f"parameters.{parameter.name}",
            )


def _variable(parameter: Parameter) -> None:
    name, field = parameter.name.removeprefix(ENVIRONMENT), f"parameters.{parameter.name}"
    if _VARIABLE.fullmatch(name) is None:
        raise BadSpec(f"{name!r} is no name of an environment variable; use letters, digits and _", field=field)
    if is_reserved(name):
        raise BadSpec(f"the environment variable {name} is reserved; use another name", field=field)
    if is_secret(name):
        raise BadSpec(
            f"{name} is a secret by its name, and values of a sweep are shown; set it in "
            "job.training_config.environment",
            field=field,
        )


def _field(parameter: Parameter, kind: FieldKind) -> None:
    if not _is_of(parameter, kind):
        raise BadSpec(f"is a {kind} in the document; its values must be, too", field=f"parameters.{parameter.name}")


def _is_of(parameter: Parameter, kind: FieldKind) -> bool:
    if kind == "whole number":
        return parameter.type == "int" or _all(parameter, int)
    if kind == "number":
        return parameter.is_number
    return _all(parameter, str if kind == "text" else bool)


def _all(parameter: Parameter, kind: type[Value]) -> bool:
    """Whether it lists values that are all of exactly this type."""
    return bool(parameter.values) and all(type(value) is kind for value in parameter.values)


def _option(parameter: Parameter) -> None:
    """A hyperparameter of a script, which may have any name that is no credential's."""
    training = {"framework": {"type": "CUSTOM"}, "hyperparameters": {parameter.name: ""}}
    try:
        credentials_are_in_the_environment(JobDocument.from_json({"training_config": training}))
    except BadSpec as error:
        raise BadSpec(error.message, field=f"parameters.{parameter.name}") from error


def _hyperparameter(parameter: Parameter, document: JobDocument) -> None:
    field = f"parameters.{parameter.name}"
    table = {item.name: item for item in TABLES[trainer(document)]}
    if parameter.name not in table:
        known = f"{', '.join(sorted(table))}{did_you_mean(parameter.name, table)}"
        raise BadSpec(
            f"is no hyperparameter of {' '.join(trainer(document))}; known: {known}; name a field of the document by "
            "its path, as in data_config.batch_size",
            field=field,
        )
    item = table[parameter.name]
    for value in parameter.values or ends(parameter):
        _fits(item, parameter, value, field)


def _fits(item: Hyperparameter, parameter: Parameter, value: Value, field: str) -> None:
    if (item.kind == "bool") != isinstance(value, bool):
        raise BadSpec(f"{value!r:.80} is not {item.expected}", field=field)
    if item.kind == "int" and parameter.type == "double":
        raise BadSpec(f"is {item.expected}; use type int", field=field)
    try:
        item.parse(wire_text(value))
    except InvalidHyperparameter as error:
        raise BadSpec(f"{error.message}; keep the space within that", field=field) from error
