"""The environment variables of a Run:ai workload: values, references to secrets, and the master's own. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from app.domain.errors import BadSpec
from app.domain.spec.rules.training import is_reserved
from app.domain.spec.secrets import MASK, is_secret
from app.schemas.spec.field_verdicts import warning
from app.services.access.secret_files import Reference

_FIELD = "environmentVariables"
Spec = Mapping[str, Any]


def environment_of(spec: Spec) -> dict[str, str]:
    """Those with a value."""
    return {each["name"]: each["value"] for _, each in _used(spec) if "value" in each}


def common_environment(spec: Spec, master: Spec) -> dict[str, str]:
    """The values for all ranks. Raises BadSpec where the master has another value, or another secret."""
    common = {each["name"]: _meaning(each) for _, each in _used(spec)}
    for _, each in _used(master):
        if common.setdefault(each["name"], _meaning(each)) != _meaning(each):
            raise BadSpec(f"{each['name']} must be the same for all ranks", field=f"masterSpec.{_FIELD}")
    return environment_of(master) | environment_of(spec)


def changed_by(master: Spec, spec: Spec) -> frozenset[str]:
    """The variables that the master has beside those of spec, or with another value."""
    common = {each["name"]: _meaning(each) for _, each in _used(spec)}
    return frozenset(each["name"] for _, each in _used(master) if common.get(each["name"]) != _meaning(each))


def secrets_of(spec: Spec, part: str) -> dict[str, Reference]:
    """Variable → the secret that it refers to."""
    return {
        each["name"]: Reference(**each["secret"], field=f"{part}.{_FIELD}.{number}.secret")
        for number, each in _used(spec)
        if each.get("secret")
    }


def reserved(spec: Spec, part: str) -> list[str]:
    """A warning for each variable that the platform sets."""
    return [
        warning(f"{part}.{_FIELD}.{each['name']}", "the platform sets this variable")
        for each in spec.get(_FIELD) or []
        if not each["exclude"] and is_reserved(each["name"])
    ]


def without_secrets(spec: Spec) -> dict[str, Any]:
    """The spec with secret values masked; the native document holds them encrypted."""
    shown = dict(spec)
    if _FIELD in spec:
        shown[_FIELD] = [
            {**each, "value": MASK} if is_secret(each["name"], each.get("value", "")) and "value" in each else each
            for each in spec[_FIELD]
        ]
    return shown


def _used(spec: Spec) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """(place in the list, variable) of those that reach the ranks."""
    for number, each in enumerate(spec.get(_FIELD) or []):
        if not each["exclude"] and not is_reserved(each["name"]):
            yield number, each


def _meaning(variable: Mapping[str, Any]) -> tuple[object, object]:
    return variable.get("value"), variable.get("secret")
