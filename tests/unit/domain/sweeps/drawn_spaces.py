"""Parameters and spaces for properties, drawn by hypothesis."""

from typing import Any

from hypothesis import reject
from hypothesis import strategies as st

from app.domain.errors import BadSpec
from app.domain.sweeps.space import Space

_whole = st.integers(-1_000, 1_000)
_numbers = st.floats(-1e6, 1e6, allow_nan=False)
_positive = st.floats(1e-9, 1e6, allow_nan=False)
_texts = st.text(max_size=8)


def _range(ends: st.SearchStrategy[Any], **more: Any) -> st.SearchStrategy[dict[str, Any]]:
    pair = st.tuples(ends, ends).map(sorted)
    return st.builds(lambda pair, more: {"min": pair[0], "max": pair[1], **more}, pair, st.fixed_dictionaries(more))


def _values(type_: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    listed = st.lists(values, min_size=1, max_size=5, unique_by=lambda value: (isinstance(value, bool), value))
    return st.builds(lambda values: {"type": type_, "values": values}, listed)


PARAMETERS: st.SearchStrategy[dict[str, Any]] = st.one_of(
    _range(_whole, type=st.just("int")),
    _range(_whole, type=st.just("int"), step=st.integers(1, 50)),
    _range(st.integers(1, 10**6), type=st.just("int"), scale=st.just("log")),
    _range(_numbers, type=st.just("double")),
    _range(_numbers, type=st.just("double"), step=st.integers(1, 1_000).map(lambda step: step / 100)),
    _range(_positive, type=st.just("double"), scale=st.just("log")),
    st.just({"type": "bool"}),
    _values("int", _whole),
    _values("double", _numbers),
    _values("categorical", st.one_of(_whole, _numbers, _texts, st.booleans())),
)
# One unit interval, as methods draw from it.
UNITS = st.floats(0, 1, exclude_max=True)

_listed: st.SearchStrategy[dict[str, Any]] = st.one_of(
    _values("int", st.integers(0, 5)),
    _values("categorical", st.sampled_from(["a", "b", "c", True, 1])),
    st.just({"type": "bool"}),
)
_NAMES = ("a", "b", "c", "d")
_REQUIRE = ("a + b <= 6", "a * 2 != b", "b / a >= 1", "c < 3", "d - a > -2")


@st.composite
def small_grids(draw: st.DrawFn) -> Space:
    """Spaces of at most 625 points, with dependencies and conditions between parameters."""
    names = _NAMES[: draw(st.integers(1, len(_NAMES)))]
    parameters: dict[str, Any] = {}
    for name in names:
        raw = dict(draw(_listed))
        if draw(st.booleans()) and parameters:
            other = draw(st.sampled_from(sorted(parameters)))
            values = parameters[other].get("values", [False, True])
            allowed = draw(st.lists(st.sampled_from(range(len(values))), min_size=1, unique=True))
            raw["only_if"] = {other: [values[i] for i in allowed]}
        parameters[name] = raw
    numbers = {name for name in names if parameters[name]["type"] != "categorical"}
    possible = [text for text in _REQUIRE if set(text) & set(_NAMES) <= numbers]
    require = draw(st.lists(st.sampled_from(possible), unique=True, max_size=2)) if possible else []
    # The order of the document may name a parameter before the one that it depends on.
    order = draw(st.permutations(sorted(parameters)))
    try:
        return Space.from_json({name: parameters[name] for name in order}, require)
    except BadSpec:
        # A dependency on values that another dependency excludes.
        reject()
