"""Observations and earlier results as they are stored and sent."""

import json

import pytest

from app.domain.sweeps.observations import EarlierResult, Observation

PLAIN = Observation(number=3, values={"x": 1.5}, state="running")
FULL = Observation(
    number=-2,
    values={"x": 1.5, "kind": "a"},
    state="stopped",
    objectives=(0.25,),
    step=300,
    violations=(-1.0, 2.0),
    reports=((100, 0.5), (300, 0.25)),
)


@pytest.mark.parametrize("observation", [PLAIN, FULL])
def test_observations_are_read_as_they_were_written(observation):
    assert Observation.from_json(json.loads(json.dumps(observation.to_json()))) == observation


def test_what_is_the_default_is_not_written():
    assert PLAIN.to_json() == {"number": 3, "values": {"x": 1.5}, "state": "running"}


@pytest.mark.parametrize(
    "result", [EarlierResult(observation=FULL), EarlierResult(observation=FULL, sweep_id="sweep-1", number=7)]
)
def test_earlier_results_are_read_as_they_were_written(result):
    assert EarlierResult.from_json(json.loads(json.dumps(result.to_json()))) == result


def test_the_origin_of_a_result_is_nothing_that_a_method_knows():
    stored = EarlierResult(observation=FULL, sweep_id="sweep-1", number=7, job_id="job-1").to_json()

    assert Observation.from_json(stored) == FULL
    assert EarlierResult.from_json(FULL.to_json()) == EarlierResult(observation=FULL)
