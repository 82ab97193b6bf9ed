"""`sweep fork --set` against a real server: the parts of a sweep that it shows are parts of a fork's document."""

from collections.abc import Iterator

import pytest

from tests.builders.sweeps import make_sweep_document
from tests.systems.apps import Api
from tests.systems.commands import run, run_json
from tests.systems.served import serving


@pytest.fixture(autouse=True)
def _served(api: Api, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with serving(api) as served:
        monkeypatch.setenv("TRAINYARD_URL", served.url)
        monkeypatch.setenv("TRAINYARD_API_KEY", api.key)
        yield


def test_every_part_of_a_sweep_can_be_set_for_its_fork(api: Api) -> None:
    sweep_id = created(api)
    first = api.get(f"/v1/sweeps/{sweep_id}")["document"]

    fork_id = run_json(
        *("sweep", "fork", sweep_id, "--set", "parameters.learning_rate.max=0.5", "--set", "labels.round=2"),
        *("--set", "method.startup_trials=4", "--set", "early_stopping.name=none", "--set", "budget.max_trials=33"),
        *("--set", 'require=["learning_rate * 1 > 0"]', "--set", "name=second"),
    )["sweep_id"]

    document = api.get(f"/v1/sweeps/{fork_id}")["document"]
    assert document["parameters"]["learning_rate"] == {**first["parameters"]["learning_rate"], "max": 0.5}
    assert set(document["parameters"]) == set(first["parameters"])
    assert (document["method"]["startup_trials"], document["method"]["seed"]) == (4, first["method"]["seed"] + 1)
    assert (document["budget"]["max_trials"], document["require"]) == (33, ["learning_rate * 1 > 0"])
    assert (document["name"], document["labels"]["round"]) == ("second", "2")


def test_value_that_the_space_does_not_take_is_refused_with_its_field(api: Api) -> None:
    answer = run("sweep", "fork", created(api), "--set", "parameters.learning_rate.scale=lg")

    assert answer.exit_code == 1
    assert "parameters.learning_rate.scale" in answer.stderr


def created(api: Api) -> str:
    return str(api.data(api.post("/v1/sweeps", make_sweep_document()), 201)["sweep_id"])
