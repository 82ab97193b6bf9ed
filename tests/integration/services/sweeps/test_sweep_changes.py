"""Changes of a sweep that exists: parts of its budget, which null removes, and limits of the settings."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.database.engine import Database
from app.domain.sweeps.rules.document import check_other_budget
from app.domain.sweeps.rules.limits import SweepLimits
from app.domain.sweeps.spec import SweepSpec
from app.models import Sweep
from tests.builders.sweep_runs import SweepRun, constant
from tests.builders.sweeps import make_sweep_document
from tests.systems.apps import Api

Make = Callable[..., SweepRun]


def patched(api: Api, run: SweepRun, **budget: Any) -> dict[str, Any]:
    found: dict[str, Any] = api.data(api.call("PATCH", f"/v1/sweeps/{run.id}", json={"budget": budget}))
    return found


@pytest.mark.both_databases
def test_null_removes_a_bound_and_a_completed_sweep_continues(make_run: Make, api: Api) -> None:
    run = make_run(budget={"max_trials": 4, "parallel_trials": 1, "target": 5.0, "patience": 9})
    run.run(curve=constant(1.0))
    assert (run.sweep().status, len(run.trials())) == ("COMPLETED", 1)

    shown = patched(api, run, target=None)

    assert shown["status"] == "RUNNING"
    assert (shown["document"]["budget"]["target"], shown["document"]["budget"]["patience"]) == (None, 9)
    run.run(curve=constant(1.0))
    assert len(run.trials()) == 4
    event = api.get(f"/v1/sweeps/{run.id}/events?page_size=100")["events"]
    assert {"budget": {"target": None}} in [each["data"].get("changes") for each in event]


@pytest.mark.both_databases
def test_the_last_bound_stays(make_run: Make, api: Api) -> None:
    run = make_run(budget={"max_trials": 4, "max_seconds": 3600})

    refused = api.problem(
        api.call("PATCH", f"/v1/sweeps/{run.id}", json={"budget": {"max_trials": None, "max_seconds": None}}), 400
    )
    shown = patched(api, run, max_trials=None)

    assert refused["details"][0]["field"] == "budget.max_trials"
    assert (shown["document"]["budget"]["max_trials"], shown["document"]["budget"]["max_seconds"]) == (None, 3600)
    assert api.problem(api.call("PATCH", f"/v1/sweeps/{run.id}", json={"budget": {"max_seconds": None}}), 400)


@pytest.mark.parametrize("part", ["parallel_trials", "running"])
def test_what_is_no_bound_is_not_removed(make_run: Make, api: Api, part: str) -> None:
    run = make_run()

    problem = api.problem(api.call("PATCH", f"/v1/sweeps/{run.id}", json={"budget": {part: None}}), 422)

    assert problem["details"][0]["field"] == f"budget.{part}"


def test_a_fork_may_be_without_a_bound_of_the_first_sweep(make_run: Make, api: Api) -> None:
    run = make_run(budget={"max_trials": 4, "max_seconds": 3600, "target": 1.0})

    created = api.data(api.post(f"/v1/sweeps/{run.id}/fork", {"budget": {"target": None, "max_trials": None}}), 201)

    budget = api.get(f"/v1/sweeps/{created['sweep_id']}")["document"]["budget"]
    assert (budget["target"], budget["max_trials"], budget["max_seconds"]) == (None, None, 3600)


def test_another_priority_is_shown_and_goes_to_a_fork(make_run: Make, api: Api) -> None:
    run = make_run()

    shown = api.data(api.call("PATCH", f"/v1/sweeps/{run.id}", json={"priority": 7}))
    created = api.data(api.post(f"/v1/sweeps/{run.id}/fork", {}), 201)

    scheduling = shown["document"]["job"]["scheduling_config"]
    assert (scheduling["priority"], scheduling["preemptible"]) == (7, True)
    assert run.another(created["sweep_id"]).sweep().base["scheduling_config"]["priority"] == 7


def test_a_fork_does_not_draw_the_values_of_the_first_sweep_again(make_run: Make, api: Api) -> None:
    run = make_run()
    run.run()

    created = api.data(api.post(f"/v1/sweeps/{run.id}/fork", {}), 201)
    fork = run.another(created["sweep_id"])
    fork.step()

    assert fork.sweep().spec["method"]["seed"] == run.sweep().spec["method"]["seed"] + 1
    tried = [trial.values for trial in run.trials()]
    assert all(trial.values not in tried for trial in fork.trials())


def test_another_method_of_a_fork_draws_other_values_unless_it_names_the_seed(make_run: Make, api: Api) -> None:
    run = make_run()

    def seed(**method: Any) -> int:
        created = api.data(api.post(f"/v1/sweeps/{run.id}/fork", {"method": {"name": "random", **method}}), 201)
        return int(run.another(created["sweep_id"]).sweep().spec["method"]["seed"])

    first = run.sweep().spec["method"]["seed"]
    assert (seed(), seed(seed=first)) == (first + 1, first)


@pytest.fixture
def small(database: Database, tmp_path: Path) -> Iterator[Api]:
    """An API whose sweeps have at most three trials and two parameters with two values."""
    limits = {"TRIALS": "3", "PARAMETERS": "2", "VALUES": "2"}
    (tmp_path / "small").mkdir()
    api = Api(database, tmp_path / "small", **{f"TRAINYARD_SWEEP_MAX_{name}": most for name, most in limits.items()})
    yield api
    api.close()


def test_limits_are_those_of_the_settings(small: Api) -> None:
    budget = {"max_trials": 3, "parallel_trials": 1}
    three = {"weight_decay": {"values": [0.0, 0.1, 0.2]}}

    too_many = small.problem(small.post("/v1/sweeps", make_sweep_document()), 400)
    values = small.problem(small.post("/v1/sweeps", make_sweep_document(budget=budget, parameters=three)), 400)
    created = small.data(small.post("/v1/sweeps", make_sweep_document(budget=budget)), 201)
    path = f"/v1/sweeps/{created['sweep_id']}"
    more = small.problem(small.call("PATCH", path, json={"budget": {"max_trials": 4}}), 400)

    assert (too_many["details"][0]["field"], "TRAINYARD_SWEEP_MAX_TRIALS" in too_many["message"]) == (
        "budget.max_trials",
        True,
    )
    assert (values["details"][0]["field"], "TRAINYARD_SWEEP_MAX_VALUES" in values["message"]) == (
        "parameters.weight_decay.values",
        True,
    )
    assert "at most 3 are allowed here (TRAINYARD_SWEEP_MAX_TRIALS)" in more["message"]


def test_a_sweep_from_before_a_lower_limit_can_be_changed(make_run: Make, small: Api) -> None:
    run = make_run(budget={"max_trials": 4})

    shown = small.data(small.call("PATCH", f"/v1/sweeps/{run.id}", json={"budget": {"parallel_trials": 3}}))

    assert (shown["document"]["budget"]["max_trials"], shown["document"]["budget"]["parallel_trials"]) == (4, 3)


@pytest.mark.parametrize(("budget", "status"), [({"parallel_trials": 1}, 200), ({"max_trials": 3}, 409)])
def test_a_budget_is_checked_while_others_may_write(
    make_run: Make, api: Api, monkeypatch: pytest.MonkeyPatch, budget: dict[str, Any], status: int
) -> None:
    run = make_run(budget={"max_trials": 4, "parallel_trials": 1})

    def check_slowly(spec: SweepSpec, limits: SweepLimits | None) -> None:
        with api.db.write() as session:  # another request, which would wait for a transaction of this one
            sweep = session.get_one(Sweep, run.id)
            sweep.spec = {**sweep.spec, "budget": {**sweep.spec["budget"], **budget}}
            sweep.labels = {"seen": "yes"}
        check_other_budget(spec, limits)

    monkeypatch.setattr("app.services.sweeps.commands.check_other_budget", check_slowly)
    answer = api.call("PATCH", f"/v1/sweeps/{run.id}", json={"budget": {"max_trials": 9}})

    assert answer.status_code == status
    assert run.sweep().labels == {"seen": "yes"}
    assert run.sweep().spec["budget"]["max_trials"] == (9 if status == 200 else 3)


def test_the_setting_ends_a_sweep_without_a_number_of_trials(small: Api) -> None:
    run = SweepRun(small, budget={"max_seconds": 3600, "parallel_trials": 1})

    run.run(curve=constant(1.0))

    sweep = run.sweep()
    assert (sweep.status, len(run.trials())) == ("COMPLETED", 3)
    assert "3 trials were made, as many as are allowed here (TRAINYARD_SWEEP_MAX_TRIALS)" in sweep.status_reason
    run.close()


def test_no_trial_is_added_above_the_setting(make_run: Make, small: Api) -> None:
    run = make_run(budget={"max_seconds": 3600, "parallel_trials": 1})
    for number in range(3):
        run.step()
        run.end(number)
        run.step()
    values = {"learning_rate": 1e-3, "weight_decay": 0.0}

    problem = small.problem(small.post(f"/v1/sweeps/{run.id}/trials", {"values": values}), 429)

    assert "has made its 3 trials; raise TRAINYARD_SWEEP_MAX_TRIALS first" in problem["message"]
