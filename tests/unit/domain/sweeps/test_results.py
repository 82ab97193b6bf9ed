"""Values of objectives, and which results are best."""

import json
import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.sweeps.observations import Observation, State
from app.domain.sweeps.pareto import dominates, front, ranked
from app.domain.sweeps.results import is_select, selected

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("values", "select", "expected"),
    [
        ([3.0, 1.0, 2.0], "best", 1.0),
        ([3.0, NAN, -INF, INF], "best", 3.0),
        ([NAN], "best", None),
        ([], "best", None),
        ([3.0, 1.0, 2.0], "last", 2.0),
        ([3.0, NAN], "last", None),
        ([], "last", None),
        ([9.0, 1.0, 2.0], "mean:2", 1.5),
        ([1.0, 2.0], "mean:5", 1.5),
        ([INF, 1.0, 2.0], "mean:2", 1.5),
        ([1.0, INF, 2.0], "mean:2", None),
        ([], "mean:2", None),
        ([1.5e308, 1.5e308], "mean:2", 1.5e308),
    ],
)
def test_selected(values: list[float], select: str, expected: float | None) -> None:
    assert selected(list(enumerate(values)), select) == expected


def test_points_are_ordered_by_step_and_a_repeated_step_counts_once() -> None:
    points = [(2, 5.0), (3, 9.0), (1, 7.0), (3, 1.0)]

    assert selected(points, "last") == 1.0
    assert selected(points, "mean:2") == 3.0


@pytest.mark.parametrize(
    "select", ["mean", "mean:", "mean:0", "mean:x", "mean:-1", "mean:10001", "mean:²", "first", ""]
)
def test_what_is_no_selection(select: str) -> None:
    assert not is_select(select)
    with pytest.raises(ValueError, match="not best, last or mean:N"):
        selected([(1, 1.0)], select)


_POINTS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 2)), max_size=30)


@given(_POINTS)
def test_the_front_has_what_no_other_dominates(points: list[tuple[int, int, int]]) -> None:
    pairs = [(one, two) for one, two, _ in points]

    assert front(points) == _not_dominated(points)
    assert front(pairs) == _not_dominated(pairs)


def _not_dominated(points: Sequence[tuple[int, ...]]) -> list[int]:
    return [i for i, mine in enumerate(points) if not any(dominates(other, mine) for other in points)]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [((1, 1), (1, 2), True), ((1, 1), (1, 1), False), ((0, 2), (1, 1), False), ((0, 0), (1, 1), True)],
)
def test_dominates(one: tuple[float, ...], other: tuple[float, ...], expected: object) -> None:
    assert dominates(one, other) is expected


def trial(number: int, *objectives: float, state: State = "completed", broken: float = 0.0) -> Observation:
    return Observation(number=number, values={}, state=state, objectives=objectives, violations=(broken,))


def test_the_best_has_the_smallest_value_of_what_completed_and_is_feasible() -> None:
    trials = [trial(4, 2.0), trial(3, 2.0), trial(1, 1.0, broken=0.1), trial(2, 1.0, state="stopped"), trial(5)]

    assert ranked(trials) == [trials[1], trials[0]]
    assert ranked([]) == []


def test_of_several_objectives_the_front_is_best() -> None:
    trials = [trial(2, 1.0, 3.0), trial(1, 3.0, 1.0), trial(0, 3.0, 3.0)]

    assert [each.number for each in ranked(trials)] == [1, 2]


@given(
    st.builds(
        Observation,
        number=st.integers(0, 9),
        values=st.dictionaries(st.text(max_size=3), st.one_of(st.integers(), st.booleans(), st.text(max_size=3))),
        state=st.sampled_from(["completed", "stopped", "failed", "running"]),
        objectives=st.lists(st.floats(allow_nan=False, allow_infinity=False)).map(tuple),
        step=st.integers(0, 9),
        violations=st.lists(st.floats(allow_nan=False, allow_infinity=False)).map(tuple),
    )
)
def test_an_observation_passes_a_pipe(observation: Observation) -> None:
    line = json.dumps(observation.to_json(), allow_nan=False)

    assert Observation.from_json(json.loads(line)) == observation
