"""Conversion of typed sections of a job document from and to the JSON that is stored."""

import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self, get_args, get_origin, get_type_hints

_Reader = Callable[[Any], Any]


@dataclass(frozen=True, kw_only=True)
class Section:
    """A JSON object of a job document; a field that it does not give has the default of its class.

    ``given`` names the fields that the stored object has, in its order: only these are written back, so that a
    stored document stays as it is when a default changes.
    """

    given: tuple[str, ...] = field(default=(), repr=False, compare=False)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Read a validated or stored object; null stands for a default, and unknown keys are ignored.

        Raises TypeError where the JSON has no object.
        """
        if not isinstance(values, dict):
            raise TypeError(f"{cls.__name__} is not a JSON object")
        shape = _SHAPES.get(cls) or _shape(cls)
        found = {}
        for name, value in values.items():
            if name not in shape.readers or (value is None and shape.defaults[name] is not None):
                continue
            reader = shape.readers[name]
            found[name] = value if reader is None or value is None else reader(value)
        return cls._of({**shape.defaults, **found, "given": tuple(found)})

    @classmethod
    def _of(cls, values: Mapping[str, Any]) -> Self:
        """As ``cls(**values)``, in a third of its time: planner and lists read thousands of documents."""
        section = cls.__new__(cls)
        section.__dict__.update(values)
        return section

    def to_json(self) -> dict[str, Any]:
        """The stored form, of which the caller may change every part."""
        values = vars(self)
        return {name: v if type(v := values[name]) in _SCALARS else _plain(v) for name in self.given}

    def changed(self, **values: Any) -> Self:
        """A copy with these fields given. Raises TypeError for a name that is no field."""
        self._require_fields(values)
        return self._of({**vars(self), **values, "given": tuple(dict.fromkeys((*self.given, *values)))})

    def filled(self, *names: str) -> Self:
        """A copy that gives these fields, with their defaults where it did not; they come first in the stored form.

        Raises TypeError for a name that is no field.
        """
        self._require_fields(names)
        return self._of({**vars(self), "given": tuple(dict.fromkeys((*names, *self.given)))})

    def _require_fields(self, names: Iterable[str]) -> None:
        readers = (_SHAPES.get(type(self)) or _shape(type(self))).readers
        if not readers.keys() >= {*names}:
            unknown = [name for name in names if name not in readers]
            raise TypeError(f"{type(self).__name__} has no field {', '.join(unknown)}")

    def without(self, *names: str) -> Self:
        """A copy that does not give these fields."""
        defaults = (_SHAPES.get(type(self)) or _shape(type(self))).defaults
        left_out = {name: defaults[name] for name in names}
        return self._of({**vars(self), **left_out, "given": tuple(name for name in self.given if name not in names)})


@dataclass(frozen=True)
class _Shape:
    """By field of a section: how its JSON value is read (None: as it is), and its default."""

    readers: Mapping[str, _Reader | None]
    defaults: Mapping[str, Any]


_SHAPES: dict[type[Section], _Shape] = {}


def _shape(cls: type[Section]) -> _Shape:
    hints, defaults = get_type_hints(cls), vars(cls())
    readers = {name: _reader(hints[name]) for name in defaults if name != "given"}
    return _SHAPES.setdefault(cls, _Shape(readers, defaults))


_SCALARS = frozenset({str, int, float, bool, types.NoneType})


def _plain(value: object) -> object:
    if type(value) in _SCALARS:
        return value
    if isinstance(value, Section):
        return value.to_json()
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def _reader(hint: object) -> _Reader | None:
    if isinstance(hint, type) and issubclass(hint, Section):
        return hint.from_json
    if get_origin(hint) is tuple:
        inner = _reader(get_args(hint)[0])
        return tuple if inner is None else lambda values: tuple(inner(value) for value in values)
    if isinstance(hint, types.UnionType):
        found = [reader for reader in map(_reader, get_args(hint)) if reader is not None]
        scalars = [each for each in get_args(hint) if each is not types.NoneType and _reader(each) is None]
        return found[0] if found and not scalars else _either(found[0]) if found else None
    return None


def _either(reader: _Reader) -> _Reader:
    """Of a field that may be a scalar instead."""
    return lambda value: reader(value) if isinstance(value, dict | list) else value
