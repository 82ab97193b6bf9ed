"""The space of a sweep: its parameters, when each is active, and the conditions between them."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.domain.errors import BadSpec
from app.domain.suggestions import did_you_mean
from app.domain.sweeps.conditions import Condition, parse_condition
from app.domain.sweeps.parameters import Parameter, Value, same

MAX_PARAMETERS, MAX_CONDITIONS = 256, 64


@dataclass(frozen=True)
class Space:
    """``parameters`` are in an order in which each comes after those that its ``only_if`` names.

    A set of values has those of the active parameters only.
    """

    parameters: tuple[Parameter, ...]
    conditions: tuple[Condition, ...]

    @staticmethod
    def from_json(parameters: Mapping[str, Any], require: Sequence[str] = ()) -> "Space":
        """Raises BadSpec."""
        if not 1 <= len(parameters) <= MAX_PARAMETERS:
            raise BadSpec(
                f"has {len(parameters)} entries; name 1 to {MAX_PARAMETERS} parameters that vary", field="parameters"
            )
        found = {name: Parameter.from_json(name, raw) for name, raw in parameters.items()}
        _check_only_if(found)
        ordered = _ordered(found)
        _check_reachable(ordered)
        return Space(ordered, _conditions(require, found))

    def to_json(self) -> dict[str, Any]:
        """``parameters`` and ``require`` as in the document."""
        return {
            "parameters": {each.name: each.to_json() for each in self.parameters},
            "require": [condition.text for condition in self.conditions],
        }

    @property
    def key(self) -> str:
        """A text that only equal spaces have; for equality itself a value 1 is a value true."""
        return json.dumps(self.to_json())

    def active(self, parameter: Parameter, values: Mapping[str, Value]) -> bool:
        """Whether it is, with these values of the parameters before it."""
        return all(
            name in values and any(same(values[name], value) for value in allowed)
            for name, allowed in parameter.only_if
        )

    def holds(self, values: Mapping[str, Value]) -> bool:
        """Whether the values meet every condition."""
        return all(condition.holds(values) for condition in self.conditions)

    def check(self, values: Mapping[str, Any], *, field: str) -> dict[str, Value]:
        """A complete set of values that was chosen by hand, in the form in which methods return theirs.

        Raises BadSpec for ``field``.
        """
        names = [each.name for each in self.parameters]
        for name in values:
            if name not in names:
                known = f"{', '.join(names)}{did_you_mean(name, names)}"
                raise BadSpec(f"{name[:80]!r} is no parameter of this sweep; known: {known}", field=f"{field}.{name}")
        found: dict[str, Value] = {}
        for parameter in self.parameters:
            self._check_one(parameter, values, found, f"{field}.{parameter.name}")
        for condition in self.conditions:
            if not condition.holds(found):
                raise BadSpec(f"the values do not meet the condition {condition.text!r} of require", field=field)
        return found

    @property
    def size(self) -> int | None:
        """Points of the grid, None where one is continuous; an upper bound where only_if or require exclude some."""
        sizes = [each.size for each in self.parameters]
        known = [size for size in sizes if size is not None]
        return math.prod(known) if len(known) == len(sizes) else None

    def examples(self) -> list[dict[str, Value]]:
        """Sets of values whose documents are checked before a sweep starts; they may break a condition.

        All lower ends, all upper ends, the i-th value of everything that lists values, and each conditional parameter
        active with its lower and its upper end.
        """
        found: dict[str, dict[str, Value]] = {}
        for wanted, end in self._wanted():
            values: dict[str, Value] = {}
            for parameter in self.parameters:
                if self.active(parameter, values):
                    values[parameter.name] = wanted.get(parameter.name, ends(parameter)[end])
            found.setdefault(json.dumps(values), values)
        return list(found.values())

    def _wanted(self) -> Iterator[tuple[dict[str, Value], int]]:
        """(values of some parameters, which end the others have: 0 or -1)."""
        yield {}, 0
        yield {}, -1
        listed = [each for each in self.parameters if each.values]
        for i in range(max((len(each.values) for each in listed), default=0)):
            yield {each.name: each.values[min(i, len(each.values) - 1)] for each in listed}, 0
        for parameter in self.parameters:
            if parameter.only_if:
                needed = {name: allowed[0] for name, allowed in _needed(parameter, self.parameters).items()}
                yield {**needed, parameter.name: ends(parameter)[0]}, 0
                yield {**needed, parameter.name: ends(parameter)[-1]}, 0

    def _check_one(self, parameter: Parameter, values: Mapping[str, Any], found: dict[str, Value], field: str) -> None:
        """Adds its value to those that were found."""
        name = parameter.name
        if not self.active(parameter, found):
            if name in values:
                wanted = " and ".join(
                    f"{other} is {' or '.join(map(_shown, allowed))}" for other, allowed in parameter.only_if
                )
                raise BadSpec(f"is only active if {wanted}; leave it out", field=field)
            return
        if name not in values:
            if not parameter.is_constant:
                raise BadSpec(f"is missing; give it {described(parameter)}", field=field)
            found[name] = parameter.at(0)
            return
        value = values[name]
        if not isinstance(value, bool | int | float | str) or not parameter.contains(value):
            raise BadSpec(f"{_shown(value)} is outside the space; use {described(parameter)}", field=field)
        found[name] = parameter.normal(value)


def ends(parameter: Parameter) -> tuple[Value, Value]:
    """Its lowest or first value, and its highest or last one."""
    size = parameter.size
    if size is not None:
        return parameter.at(0), parameter.at(size - 1)
    return parameter.from_unit(0.0), parameter.from_unit(1.0)


def described(parameter: Parameter) -> str:
    """What it may be, in words."""
    if parameter.values:
        return f"one of {', '.join(map(_shown, parameter.values[:20]))}{', …' * (len(parameter.values) > 20)}"
    noun = "a whole number" if parameter.type == "int" else "a number"
    step = f" in steps of {parameter.step}" if parameter.step else ""
    return f"{noun} from {parameter.low} to {parameter.high}{step}"


def _shown(value: object) -> str:
    return json.dumps(value) if isinstance(value, bool) else f"{value!r:.80}"


def _check_only_if(parameters: Mapping[str, Parameter]) -> None:
    for parameter in parameters.values():
        for other, values in parameter.only_if:
            field = f"parameters.{parameter.name}.only_if.{other}"
            if other not in parameters or other == parameter.name:
                known = [name for name in parameters if name != parameter.name]
                raise BadSpec(
                    f"{other[:80]!r} is no other parameter; known: {', '.join(known)}{did_you_mean(other, known)}",
                    field=field,
                )
            parent = parameters[other]
            if parent.size is None:
                raise BadSpec(
                    f"{other} is continuous, so it has none of these values; give it values or step", field=field
                )
            for value in values:
                if not parent.contains(value):
                    raise BadSpec(f"{other} is never {_shown(value)}; it is {described(parent)}", field=field)


def _ordered(parameters: Mapping[str, Parameter]) -> tuple[Parameter, ...]:
    """By name, each after those of its only_if: draws depend on the order, and PostgreSQL keeps none of a document."""
    found: dict[str, Parameter] = {}
    while len(found) < len(parameters):
        ready = next(
            (
                each
                for name, each in sorted(parameters.items())
                if name not in found and all(other in found for other, _ in each.only_if)
            ),
            None,
        )
        if ready is None:
            left = [name for name in parameters if name not in found]
            raise BadSpec(
                f"only_if goes in a circle: {', '.join(left)} depend on each other; remove one of them",
                field=f"parameters.{left[0]}.only_if",
            )
        found[ready.name] = ready
    return tuple(found.values())


def _needed(parameter: Parameter, parameters: Sequence[Parameter]) -> dict[str, list[Value]]:
    """The values that others may have for it to be active, directly and through them."""
    by_name = {each.name: each for each in parameters}
    found: dict[str, list[Value]] = {}
    to_do = [parameter]
    seen: set[str] = set()
    while to_do:
        for other, values in to_do.pop().only_if:
            before = found.get(other, list(values))
            found[other] = [value for value in before if any(same(value, each) for each in values)]
            if other not in seen:
                seen.add(other)
                to_do.append(by_name[other])
    return found


def _check_reachable(parameters: Sequence[Parameter]) -> None:
    for parameter in parameters:
        for other, values in _needed(parameter, parameters).items():
            if not values:
                raise BadSpec(
                    f"is never met: {other} would have to have two values at once; correct it",
                    field=f"parameters.{parameter.name}.only_if",
                )


def _conditions(require: Sequence[str], parameters: Mapping[str, Parameter]) -> tuple[Condition, ...]:
    if len(require) > MAX_CONDITIONS:
        raise BadSpec(f"has {len(require)} entries; {MAX_CONDITIONS} are allowed", field="require")
    found = tuple(parse_condition(text, field=f"require.{i}") for i, text in enumerate(require))
    for i, condition in enumerate(found):
        for name in sorted(condition.names):
            if name not in parameters:
                known = ", ".join(parameters)
                raise BadSpec(
                    f"{name!r} is no parameter; known: {known}{did_you_mean(name, parameters)}", field=f"require.{i}"
                )
            if not parameters[name].is_number:
                raise BadSpec(f"{name} is no number; conditions compare numbers", field=f"require.{i}")
    return found
