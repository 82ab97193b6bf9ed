"""Everything that can be seen of an attempt, and the outcome it leads to."""

import pytest

from workers.failures import AttemptFailed
from workers.messages import Failure, RankExit, Result
from workers.outcomes import TIME_LIMIT, Sightings, judge


def result(stopped=None):
    return Result(stopped=stopped, step=5, tokens=0, final_metrics={}, weight_files=())


def gone(rank=0, exit_code=1, signal=None):
    return RankExit(rank=rank, exit_code=exit_code, signal=signal)


def said(error_type="DATA_INVALID"):
    return Failure(rank=1, error_type=error_type, message="row 3 is odd", stack="Traceback")


KILLED = gone(exit_code=137, signal="SIGKILL")

CASES = {
    "result and exit 0": ({"result": result(), "exit_code": 0}, "completed", ""),
    "result but exit 1": ({"result": result(), "exit_code": 1, "exits": [gone()]}, "failed", "TRAINER_ERROR"),
    "silent script exits 0": ({"custom": True, "exit_code": 0}, "completed", ""),
    "silent trainer exits 0": ({"exit_code": 0}, "failed", "NO_RESULT"),
    "script spoke, exits 0": ({"custom": True, "spoke": True, "exit_code": 0}, "failed", "NO_RESULT"),
    "script exits 3": ({"custom": True, "exit_code": 3, "exits": [gone(exit_code=3)]}, "failed", "SCRIPT_ERROR"),
    "trainer exits 3": ({"exit_code": 3, "exits": [gone(exit_code=3)]}, "failed", "TRAINER_ERROR"),
    "rank killed": ({"exit_code": 137, "exits": [KILLED]}, "failed", "RANK_KILLED"),
    "rank killed for memory": (
        {"exit_code": 137, "exits": [KILLED], "out_of_memory_kills": 1},
        "failed",
        "OUT_OF_MEMORY",
    ),
    "rank crashed": ({"custom": True, "exits": [gone(signal="SIGSEGV", exit_code=139)]}, "failed", "SCRIPT_ERROR"),
    "rank said why": ({"said": [said()], "exits": [gone()]}, "failed", "DATA_INVALID"),
    "rank may not blame the node": ({"said": [said("NODE_LOST")], "exits": [gone()]}, "failed", "TRAINER_ERROR"),
    "nothing was ever heard": ({"exit_code": 1}, "failed", "RANK_KILLED"),
    "paused": ({"stopping": "pause", "result": result("pause"), "exit_code": 0}, "paused", ""),
    "requeued": ({"stopping": "requeue", "result": result("requeue"), "exit_code": 0}, "requeued", ""),
    "finished before it paused": ({"stopping": "pause", "result": result(), "exit_code": 0}, "completed", ""),
    "finished before it was cancelled": ({"stopping": "cancel", "result": result(), "exit_code": 0}, "completed", ""),
    "cancelled": ({"stopping": "cancel", "exit_code": 143, "exits": [KILLED], "terminated": True}, "cancelled", ""),
    "cancelled before it was launched": ({"stopping": "cancel"}, "cancelled", ""),
    "paused before it was launched": ({"stopping": "pause"}, "paused", ""),
    "broke while saving for a pause": (
        {"stopping": "pause", "exit_code": 1, "said": [said()], "exits": [gone()]},
        "failed",
        "DATA_INVALID",
    ),
    "exits 1 on our SIGTERM": (
        {"custom": True, "stopping": "pause", "terminated": True, "exit_code": 1, "exits": [gone()]},
        "paused",
        "",
    ),
    "broke while being cancelled": (
        {"stopping": "cancel", "exit_code": 1, "said": [said()], "exits": [gone()]},
        "cancelled",
        "",
    ),
    "time is up": (
        {"stopping": TIME_LIMIT, "result": result("pause"), "exit_code": 0},
        "failed",
        "MAX_RUNTIME_EXCEEDED",
    ),
    "finished in the last second": ({"stopping": TIME_LIMIT, "result": result(), "exit_code": 0}, "completed", ""),
    "silent script ended by a pause": ({"custom": True, "stopping": "pause", "exit_code": 0}, "paused", ""),
    "stopped though nobody asked": ({"result": result("pause"), "exit_code": 0}, "failed", "NO_RESULT"),
    "could not be prepared": ({"failure": AttemptFailed("MODEL_NOT_FOUND", "no model")}, "failed", "MODEL_NOT_FOUND"),
}


@pytest.mark.parametrize(("seen", "kind", "cause"), CASES.values(), ids=CASES.keys())
def test_what_was_seen_decides(seen, kind, cause):
    verdict = judge(Sightings(**{"custom": False, **seen}))

    assert (verdict.kind, verdict.cause) == (kind, cause)


def test_unexplained_end_shows_the_last_lines_of_the_first_rank_that_broke():
    seen = Sightings(
        custom=True, exits=[gone(rank=1), gone(rank=0)], exit_code=1, last_lines={0: ["fine"], 1: ["a", "b"]}
    )

    verdict = judge(seen)

    assert (verdict.message, verdict.stack, verdict.related_task) == (
        "rank 1 ended with exit code 1",
        "a\nb",
        "rank-1",
    )


def test_time_limit_is_named():
    assert "90" in judge(Sightings(custom=True, stopping=TIME_LIMIT, time_limit_seconds=90)).message
