"""The outcome of a job with roles names the instance that failed, and forgets one that was started again."""

from dataclasses import replace

from trainyard.protocol.messages import Failure, RankExit
from workers.supervisor.ranks.observations import Observations
from workers.supervisor.ranks.verdict import judge

NAMES = {0: "trainer 0", 1: "rollout 0"}


def said(rank: int, message: str) -> Failure:
    return Failure(rank=rank, error_type="SCRIPT_ERROR", message=message, stack="Traceback")


def test_a_failed_instance_of_a_role_is_named() -> None:
    seen = Observations(custom=True, exits=[RankExit(rank=1, exit_code=9, signal=None)], exit_code=9, instances=NAMES)

    assert judge(seen).message == "rank 1 (rollout 0) ended with exit code 9"


def test_what_a_rank_of_a_role_says_is_kept_and_names_its_instance() -> None:
    seen = Observations(custom=True, reported=[said(1, "row 3 is odd")], exit_code=1, instances=NAMES)

    assert judge(seen).message == "row 3 is odd; rank 1 (rollout 0) reported it"


def test_an_instance_that_was_started_again_explains_nothing() -> None:
    seen = Observations(custom=True, reported=[said(1, "row 3 is odd"), said(0, "later")], instances=NAMES)
    seen.ends(1.0)

    seen.forget_failures([1])
    assert [each.rank for each in seen.reported] == [0]
    assert seen.ends_since == 1.0
    seen.forget_failures([0])
    assert seen.ends_since is None


def test_a_script_beside_a_built_in_training_fails_as_a_script() -> None:
    names = {0: "trainer 0", 1: "judge 0"}
    seen = Observations(custom=False, exits=[RankExit(rank=1, exit_code=9, signal=None)], exit_code=9, instances=names)

    assert judge(seen).cause == "TRAINER_ERROR"
    seen.scripts = {1}
    assert (judge(seen).cause, judge(seen).message) == ("SCRIPT_ERROR", "rank 1 (judge 0) ended with exit code 9")


def test_what_a_script_beside_a_training_printed_and_reported_is_kept() -> None:
    printed = ["Traceback (most recent call last):", '  File "/judge.py", line 3, in <module>', "ValueError: no rule"]
    names, fails = {0: "trainer 0", 1: "judge 0"}, RankExit(rank=1, exit_code=1, signal=None)
    seen = Observations(custom=False, exits=[fails], exit_code=1, instances=names, last_lines={0: printed, 1: printed})

    assert "no rule" not in judge(seen).message
    seen.scripts = {1}
    assert judge(seen).message == "ValueError: no rule (judge.py:3); rank 1 (judge 0) ended with exit code 1"
    stack = "\n".join(printed)
    seen.reported = [Failure(rank=1, error_type="ValueError", message="ValueError: no rule", stack=stack)]
    assert judge(seen).message == "ValueError: no rule (judge.py:3); rank 1 (judge 0) reported it"


def test_the_rank_that_reported_an_error_says_whose_fault_it_is() -> None:
    seen = Observations(custom=False, exits=[RankExit(rank=1, exit_code=1, signal=None)], exit_code=1, scripts={1})
    seen.reported = [Failure(rank=0, error_type="ValueError", message="no answer", stack="")]

    assert judge(seen).cause == "TRAINER_ERROR"
    seen.reported[0] = replace(seen.reported[0], rank=1)
    assert judge(seen).cause == "SCRIPT_ERROR"
