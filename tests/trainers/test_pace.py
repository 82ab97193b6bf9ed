"""Which of several ranks the others wait for is named, with its time; and how much memory one takes."""

from typing import Any

import pytest

from tests.trainers.in_process import Outcome, plan_of, shared_runs

STEPS = 4
SECONDS = 0.6  # much more than a pass takes here, also when much else runs
RANK_SERIES = ("slowest_rank", "slowest_rank_seconds", "fastest_rank_seconds")


@pytest.fixture(scope="module")
def outcomes(assets, run_directory) -> dict[str, Outcome]:
    """The same training on two ranks, of which the one or the other is slow."""
    directory = run_directory / "pace"
    changes: dict[str, Any] = {"training_config": {"evaluation": {"strategy": "steps", "steps": 2}}, "world_size": 2}
    plans = {
        str(rank): plan_of(directory / str(rank), assets, "SFT", {"max_steps": str(STEPS)}, **changes)
        | {"slow_rank": rank, "slow_seconds": SECONDS}
        for rank in (0, 1)
    }
    return shared_runs(directory, plans, world_size=2)


@pytest.mark.long
@pytest.mark.parametrize("rank", [0, 1])
def test_slowest_rank_is_named_from_the_second_step_on(outcomes, rank):
    named, slowest, fastest = (outcomes[str(rank)].series(name) for name in RANK_SERIES)

    assert named == dict.fromkeys(range(2, STEPS + 1), rank)
    assert all(seconds >= SECONDS for seconds in slowest.values())
    assert all(0 < fastest[step] < slowest[step] for step in fastest)
    assert fastest.keys() == named.keys()


@pytest.mark.long
def test_memory_is_that_of_the_rank_with_the_most(outcomes):
    peaks = outcomes["0"].series("rank_memory_mb_max")

    assert list(peaks) == list(range(1, STEPS + 1))
    assert all(peak > 50 for peak in peaks.values())
    assert list(peaks.values()) == sorted(peaks.values())


@pytest.mark.long
def test_what_is_said_of_ranks_is_no_result(outcomes):
    final = outcomes["0"].result["final_metrics"]

    assert "loss" in final
    assert not {*RANK_SERIES, "rank_memory_mb_max"} & final.keys()
