"""Limits of the settings: within those of the format, and refusals name the setting."""

from dataclasses import replace
from typing import Any

import pytest

from app.domain.errors import BadSpec
from app.domain.sweeps import grid as grids
from app.domain.sweeps.rules.document import check, check_other_budget
from app.domain.sweeps.rules.limits import DEFAULT, OF_THE_FORMAT, SweepLimits
from app.domain.sweeps.spec import SweepSpec
from config.settings import SettingsError, load_settings
from tests.unit.domain.sweeps.sweep_documents import SCRIPT, sweep

SMALL = SweepLimits(max_trials=50, max_parameters=4, max_values=2)
BIG_GRID = {name: {"type": "int", "min": 1, "max": 5} for name in ("a", "b", "c")}


def spec(**changes: Any) -> SweepSpec:
    return SweepSpec.from_json(sweep(**changes))


def of_script(**changes: Any) -> SweepSpec:
    job = {
        "training_config": {**SCRIPT["training_config"], "framework": {"type": "CUSTOM", "custom_script_path": "a.py"}}
    }
    given = {"job": job, "objective": {"metric": "a", "goal": "minimize"}, "early_stopping": {}, "require": []}
    return spec(**given, constraints=[], **changes)


def test_settings_have_the_defaults_of_the_rules_and_end_where_the_format_does() -> None:
    defaults = load_settings({}).sweep

    assert SweepLimits(**vars(defaults)) == DEFAULT
    for name, most in vars(OF_THE_FORMAT).items():
        variable = f"TRAINYARD_SWEEP_{name}".upper()
        assert getattr(load_settings({variable: str(most)}).sweep, name) == most
        for value in (0, most + 1):
            with pytest.raises(SettingsError, match=f"{variable}=.*from 1 to {most}"):
                load_settings({variable: str(value)})


@pytest.mark.parametrize(
    ("limits", "field", "setting"),
    [
        (replace(DEFAULT, max_trials=59), "budget.max_trials", "TRAINYARD_SWEEP_MAX_TRIALS"),
        (replace(DEFAULT, max_parameters=4), "parameters", "TRAINYARD_SWEEP_MAX_PARAMETERS"),
        (replace(DEFAULT, max_values=2), "parameters.lora_r.values", "TRAINYARD_SWEEP_MAX_VALUES"),
    ],
)
def test_what_is_above_a_limit_is_refused_with_the_setting(limits: SweepLimits, field: str, setting: str) -> None:
    with pytest.raises(BadSpec) as caught:
        check(spec(), limits)

    assert caught.value.field == field
    assert setting in caught.value.message


def test_what_is_at_a_limit_is_accepted() -> None:
    assert check(spec(), SweepLimits(max_trials=60, max_parameters=5, max_values=3)).parameters


def test_a_higher_limit_accepts_what_the_default_refuses() -> None:
    many = of_script(
        parameters={f"a{i}": {"type": "int", "values": list(range(1_001 if i == 0 else 2))} for i in range(65)},
        budget={"max_trials": 10_001},
    )

    with pytest.raises(BadSpec, match="65 entries"):
        check(many)
    assert len(check(many, OF_THE_FORMAT).parameters) == 65


def test_a_grid_without_a_number_of_trials_has_at_most_as_many_points() -> None:
    grid = of_script(parameters=BIG_GRID, method={"name": "grid"}, budget={"parallel_trials": 2})

    assert check(grid, replace(DEFAULT, max_trials=125)).size == 125
    with pytest.raises(BadSpec, match="more than 124 points"):
        check(grid, replace(DEFAULT, max_trials=124))
    with pytest.raises(BadSpec, match="more than 124 points"):
        check_other_budget(grid, replace(DEFAULT, max_trials=124))


def test_another_budget_is_checked_as_a_new_one() -> None:
    with pytest.raises(BadSpec, match="is missing"):
        check_other_budget(spec(budget={"target": 1.0}), DEFAULT)
    with pytest.raises(BadSpec, match="at most 50"):
        check_other_budget(spec(), SMALL)
    check_other_budget(spec(budget={"max_seconds": 60}), SMALL)


@pytest.mark.parametrize("most", [400, None])
def test_the_points_of_a_grid_are_checked_for_every_other_number_of_trials(
    most: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grids, "MAX_MISSES", 2_000)
    parameters = {name: {"type": "int", "min": 0, "max": 1_000} for name in ("a", "b")}
    grid = of_script(parameters=parameters, method={"name": "grid", "order": "natural"}, budget={"max_trials": 1})
    grid = replace(grid, require=("a == b",))
    check_other_budget(grid, DEFAULT)

    other = replace(grid, budget=replace(grid.budget, max_trials=most))
    with pytest.raises(BadSpec, match="nearly nothing"):
        check_other_budget(other, DEFAULT)
    check_other_budget(other, None)  # its number of trials is not what changes
