"""Everything that a supervisor observes of an attempt, and the resulting outcome."""

import pytest

from app.domain.spec.model import HaltAt
from trainyard.protocol.messages import Failure, RankExit, Result
from workers.attempt_failed import AttemptFailed
from workers.supervisor.ranks.observations import TIME_LIMIT, Observations
from workers.supervisor.ranks.verdict import is_consequence, judge, judge_part


def result(stopped=None):
    return Result(stopped=stopped, step=5, tokens=0, final_metrics={}, weight_files=())


def gone(rank=0, exit_code=1, signal=None, at=None):
    return RankExit(rank=rank, exit_code=exit_code, signal=signal, at=at)


WORKER_KILLED = "RuntimeError: DataLoader worker (pid 12) is killed by signal: Killed."


def said(error_type="DATA_INVALID", message="row 3 is odd", rank=1):
    return Failure(rank=rank, error_type=error_type, message=message, stack="Traceback")


KILLED = gone(exit_code=137, signal="SIGKILL")

HALTS = HaltAt(at=(5,))
SERVES = {"serves": True, "answers": True, "can_save": False}

CASES = {
    "replica that drained": (
        {**SERVES, "stopping": "drain", "forced": True, "result": result(), "exit_code": 0},
        "completed",
        "",
    ),
    "replica whose answers took too long": (
        {**SERVES, "stopping": "drain", "forced": True, "terminated": True, "exit_code": 143},
        "completed",
        "",
    ),
    "replica that was drained before it answered": (
        {"serves": True, "stopping": "drain", "forced": True, "terminated": True, "exit_code": 143},
        "cancelled",
        "",
    ),
    "replica that ends by itself before it answers": (
        {"serves": True, "result": result(), "exit_code": 0},
        "failed",
        "NO_RESULT",
    ),
    "replica that ends by itself": ({**SERVES, "result": result(), "exit_code": 0}, "failed", "NO_RESULT"),
    "replica that is cancelled while it drains": (
        {**SERVES, "stopping": "cancel", "result": result(), "exit_code": 0},
        "cancelled",
        "",
    ),
    "replica that yields": (
        {**SERVES, "stopping": "preempt", "forced": True, "result": result("requeue"), "exit_code": 0},
        "preempted",
        "",
    ),
    "replica that crashes": ({**SERVES, "exit_code": 1, "exits": [gone()]}, "failed", "TRAINER_ERROR"),
    "result and exit 0": ({"result": result(), "exit_code": 0}, "completed", ""),
    "result but exit 1": ({"result": result(), "exit_code": 1, "exits": [gone()]}, "failed", "TRAINER_ERROR"),
    "silent script exits 0": ({"custom": True, "exit_code": 0}, "completed", ""),
    "silent trainer exits 0": ({"exit_code": 0}, "failed", "NO_RESULT"),
    "script spoke, exits 0": ({"custom": True, "has_connected": True, "exit_code": 0}, "failed", "NO_RESULT"),
    "script exits 3": ({"custom": True, "exit_code": 3, "exits": [gone(exit_code=3)]}, "failed", "SCRIPT_ERROR"),
    "trainer exits 3": ({"exit_code": 3, "exits": [gone(exit_code=3)]}, "failed", "TRAINER_ERROR"),
    "rank killed": ({"exit_code": 137, "exits": [KILLED]}, "failed", "RANK_KILLED"),
    "rank killed for memory": (
        {"exit_code": 137, "exits": [KILLED], "out_of_memory_kills": 1},
        "failed",
        "HOST_OUT_OF_MEMORY",
    ),
    "rank killed at the job's limit": (
        {"exit_code": 137, "exits": [KILLED], "out_of_memory_kills": 1, "exceeded_memory_mb": 300},
        "failed",
        "HOST_OUT_OF_MEMORY",
    ),
    "rank killed for memory, others noticed first": (
        {"exits": [gone(rank=1), KILLED], "reported": [said("RANK_KILLED")], "out_of_memory_kills": 1},
        "failed",
        "HOST_OUT_OF_MEMORY",
    ),
    "rank killed for memory, so another one lost its connection": (
        {
            "custom": True,
            "reported": [said("SCRIPT_ERROR", "RuntimeError: Connection closed by peer")],
            "exits": [KILLED, gone(rank=1)],
            "out_of_memory_kills": 1,
        },
        "failed",
        "HOST_OUT_OF_MEMORY",
    ),
    "rank says why, another one is killed by our teardown, and a neighbour for memory": (
        {
            "custom": True,
            "reported": [said("SCRIPT_ERROR", "KeyError: 'txt'", rank=0)],
            "exits": [gone(), gone(rank=1, exit_code=137, signal="SIGKILL")],
            "out_of_memory_kills": 1,
        },
        "failed",
        "SCRIPT_ERROR",
    ),
    "rank breaks without a word, another one is killed by our teardown, and a neighbour for memory": (
        {
            "custom": True,
            "exits": [gone(exit_code=7, at=100.0), gone(rank=1, exit_code=137, signal="SIGKILL", at=103.01)],
            "out_of_memory_kills": 1,
        },
        "failed",
        "SCRIPT_ERROR",
    ),
    "rank killed for memory a moment after another one noticed": (
        {
            "custom": True,
            "exits": [gone(exit_code=7, at=100.0), gone(rank=1, exit_code=137, signal="SIGKILL", at=100.4)],
            "out_of_memory_kills": 1,
        },
        "failed",
        "HOST_OUT_OF_MEMORY",
    ),
    "the ranks' parent killed for memory": (
        {"exit_code": -9, "out_of_memory_kills": 1},
        "failed",
        "HOST_OUT_OF_MEMORY",
    ),
    "a data loader killed for memory": (
        {"reported": [said("TRAINER_ERROR", WORKER_KILLED)], "exits": [gone()], "out_of_memory_kills": 1},
        "failed",
        "HOST_OUT_OF_MEMORY",
    ),
    "a data loader killed by another process": (
        {"reported": [said("TRAINER_ERROR", WORKER_KILLED)], "exits": [gone()]},
        "failed",
        "TRAINER_ERROR",
    ),
    "device out of memory": ({"reported": [said("OUT_OF_MEMORY")], "exits": [gone()]}, "failed", "OUT_OF_MEMORY"),
    "others end because a rank was killed": (
        {"custom": True, "reported": [said("RANK_KILLED")], "exits": [KILLED, gone(rank=1, exit_code=143)]},
        "failed",
        "RANK_KILLED",
    ),
    "others end because a rank broke without a word": (
        {"custom": True, "reported": [said("RANK_KILLED")], "exits": [gone(exit_code=7), gone(rank=1, exit_code=143)]},
        "failed",
        "SCRIPT_ERROR",
    ),
    "one that knows is believed": (
        {"reported": [said("RANK_KILLED"), said("DATA_INVALID", rank=0)], "exits": [gone(rank=1)]},
        "failed",
        "DATA_INVALID",
    ),
    "rank that got a SIGTERM from another process": (
        {"custom": True, "reported": [said("RANK_KILLED")], "exits": [gone(rank=1, exit_code=143)]},
        "failed",
        "RANK_KILLED",
    ),
    "disk full, says a rank": ({"reported": [said("DISK_FULL")], "exits": [gone()]}, "failed", "DISK_FULL"),
    "not saved, because of a full disk of ours": (
        {"reported": [said("STORAGE_ERROR")], "exits": [gone()], "disk_error": "a checkpoint found no room"},
        "failed",
        "DISK_FULL",
    ),
    "hang": ({"failure": AttemptFailed("HANG", "no step"), "terminated": True, "exits": [KILLED]}, "failed", "HANG"),
    "preempted": (
        {"stopping": "preempt", "forced": True, "result": result("requeue"), "exit_code": 0},
        "preempted",
        "",
    ),
    "forced pause whose save broke the script": (
        {"stopping": "pause", "forced": True, "exit_code": 1, "reported": [said()], "exits": [gone()]},
        "paused",
        "",
    ),
    "rank crashed": ({"custom": True, "exits": [gone(signal="SIGSEGV", exit_code=139)]}, "failed", "SCRIPT_ERROR"),
    "rank said why": ({"reported": [said()], "exits": [gone()]}, "failed", "DATA_INVALID"),
    "rank may not blame the node": ({"reported": [said("NODE_LOST")], "exits": [gone()]}, "failed", "TRAINER_ERROR"),
    "nothing was ever heard": ({"exit_code": 1}, "failed", "RANK_KILLED"),
    "paused": ({"stopping": "pause", "result": result("pause"), "exit_code": 0}, "paused", ""),
    "requeued": ({"stopping": "requeue", "result": result("requeue"), "exit_code": 0}, "requeued", ""),
    "halted": ({"halts": HALTS, "result": result("halt"), "exit_code": 0}, "paused", ""),
    "halted, and hangs in its exit": (
        {"halts": HALTS, "result": result("halt"), "failure": AttemptFailed("HANG", "no end"), "terminated": True},
        "paused",
        "",
    ),
    "halted while a pause was requested": (
        {"halts": HALTS, "stopping": "pause", "result": result("halt"), "exit_code": 0},
        "paused",
        "",
    ),
    "halted while its node was drained": (
        {"halts": HALTS, "stopping": "requeue", "forced": True, "result": result("halt"), "exit_code": 0},
        "paused",
        "",
    ),
    "halted while it was preempted": (
        {"halts": HALTS, "stopping": "preempt", "result": result("halt"), "exit_code": 0},
        "paused",
        "",
    ),
    "halted when its time was over": (
        {"halts": HALTS, "stopping": TIME_LIMIT, "result": result("halt"), "exit_code": 0},
        "paused",
        "",
    ),
    "cancelled while it halted": (
        {"halts": HALTS, "stopping": "cancel", "forced": True, "result": result("halt"), "exit_code": 0},
        "cancelled",
        "",
    ),
    "halted, and a rank crashed": (
        {"halts": HALTS, "result": result("halt"), "exit_code": 1, "exits": [gone(rank=1)]},
        "failed",
        "TRAINER_ERROR",
    ),
    "a script halted": ({"custom": True, "halts": HALTS, "result": result("halt"), "exit_code": 0}, "paused", ""),
    "a script halted at another step": (
        {"custom": True, "halts": HaltAt(at=(4, 6)), "result": result("halt"), "exit_code": 0},
        "failed",
        "NO_RESULT",
    ),
    "a script without hooks of a document with halts": (
        {"custom": True, "halts": HALTS, "exit_code": 0},
        "failed",
        "INVALID_CONFIG",
    ),
    "halted without a halt in the document": ({"result": result("halt"), "exit_code": 0}, "failed", "NO_RESULT"),
    "paused at a step of a document with halts": (
        {"halts": HALTS, "stopping": "pause", "result": result("pause"), "exit_code": 0},
        "paused",
        "",
    ),
    "finished before it paused": ({"stopping": "pause", "result": result(), "exit_code": 0}, "completed", ""),
    "finished before it was cancelled": ({"stopping": "cancel", "result": result(), "exit_code": 0}, "completed", ""),
    "cancelled": ({"stopping": "cancel", "exit_code": 143, "exits": [KILLED], "terminated": True}, "cancelled", ""),
    "cancelled before it was launched": ({"stopping": "cancel"}, "cancelled", ""),
    "paused before it was launched": ({"stopping": "pause"}, "paused", ""),
    "broke while saving for a pause": (
        {"stopping": "pause", "exit_code": 1, "reported": [said()], "exits": [gone()]},
        "failed",
        "DATA_INVALID",
    ),
    "exits 1 on our SIGTERM": (
        {"custom": True, "stopping": "pause", "terminated": True, "exit_code": 1, "exits": [gone()]},
        "paused",
        "",
    ),
    "broke while being cancelled": (
        {"stopping": "cancel", "exit_code": 1, "reported": [said()], "exits": [gone()]},
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
    "stopped without a control request": ({"result": result("pause"), "exit_code": 0}, "failed", "NO_RESULT"),
    "stopped for a pause that was given up": (
        {"pause_given_up": True, "result": result("pause"), "exit_code": 0},
        "requeued",
        "",
    ),
    "broke after a pause that was given up": (
        {"pause_given_up": True, "exit_code": 1, "reported": [said()], "exits": [gone()]},
        "failed",
        "DATA_INVALID",
    ),
    "finished, and hangs in its exit": (
        {
            "failure": AttemptFailed("HANG", "after its last word"),
            "result": result(),
            "terminated": True,
            "exit_code": 137,
        },
        "completed",
        "",
    ),
    "paused, and hangs in its exit": (
        {
            "failure": AttemptFailed("HANG", "after its last word"),
            "result": result(stopped="pause"),
            "stopping": "pause",
            "terminated": True,
            "exit_code": 137,
        },
        "paused",
        "",
    ),
    "could not be prepared": ({"failure": AttemptFailed("MODEL_NOT_FOUND", "no model")}, "failed", "MODEL_NOT_FOUND"),
}


@pytest.mark.parametrize(("seen", "kind", "cause"), CASES.values(), ids=CASES.keys())
def test_what_was_seen_decides(seen, kind, cause):
    verdict = judge(Observations(**{"custom": False, **seen}))

    assert (verdict.kind, verdict.cause) == (kind, cause)


def test_unexplained_end_shows_the_last_lines_of_the_first_rank_that_broke():
    seen = Observations(
        custom=True, exits=[gone(rank=1), gone(rank=0)], exit_code=1, last_lines={0: ["fine"], 1: ["a", "b"]}
    )

    verdict = judge(seen)

    assert (verdict.message, verdict.stack, verdict.related_task) == ("rank 1 ended with exit code 1", "a\nb", "rank-1")


BROKEN = "GPU 1 has 4 memory errors"


@pytest.mark.parametrize(
    ("seen", "cause"),
    [
        ({"exits": [gone()], "exit_code": 1}, "DEVICE_FAULT"),
        (
            {"reported": [said("NON_FINITE_LOSS", "loss is nan")], "exits": [gone(rank=1)], "exit_code": 1},
            "DEVICE_FAULT",
        ),
        ({"failure": AttemptFailed("HANG", "no step")}, "DEVICE_FAULT"),
        ({"reported": [said("DATA_INVALID")], "exits": [gone(rank=1)], "exit_code": 1}, "DATA_INVALID"),
        ({"failure": AttemptFailed("DISK_FULL", "no room")}, "DISK_FULL"),
        ({"result": result(), "exit_code": 0}, ""),
        ({"result": result("pause"), "exit_code": 0, "stopping": "pause"}, ""),
    ],
)
def test_gpu_that_broke_meanwhile_explains_what_ranks_end_by(seen, cause):
    verdict = judge(Observations(**{"custom": False, "broken_devices": BROKEN, **seen}))

    assert verdict.cause == cause
    assert verdict.message.startswith(BROKEN) == (cause == "DEVICE_FAULT")


def test_halt_names_its_step():
    verdict = judge(Observations(custom=False, halts=HALTS, result=result("halt"), exit_code=0))

    assert verdict.message == "halted at step 5"


def test_time_limit_is_named():
    assert "90" in judge(Observations(custom=True, stopping=TIME_LIMIT, time_limit_seconds=90)).message


PART_CASES = {
    "exit 0": ({"exit_code": 0, "has_connected": True}, "completed", ""),
    "exit 0 of a script that spoke": ({"custom": True, "has_connected": True, "exit_code": 0}, "completed", ""),
    "stopped as asked": ({"exit_code": 0, "stopping": "pause"}, "paused", ""),
    "stopped at the time limit": ({"exit_code": 0, "stopping": TIME_LIMIT}, "completed", ""),
    "rank killed": ({"exit_code": 137, "exits": [KILLED]}, "failed", "RANK_KILLED"),
    "another part has ended": (
        {"exit_code": 143, "terminated": True, "failure": AttemptFailed("RANK_KILLED", "n2")},
        "failed",
        "RANK_KILLED",
    ),
}


@pytest.mark.parametrize(("seen", "kind", "cause"), PART_CASES.values(), ids=PART_CASES.keys())
def test_ranks_on_a_further_node_are_judged_by_how_they_end(seen, kind, cause):
    verdict = judge_part(Observations(**{"custom": False, **seen}))

    assert (verdict.kind, verdict.cause) == (kind, cause)


@pytest.mark.parametrize(
    ("seen", "follows"),
    [
        ({"failure": AttemptFailed("RANK_KILLED", "its part on node n2 has ended"), "terminated": True}, True),
        ({"reported": [said("RANK_KILLED", "connection reset by peer")], "exits": [gone(rank=1)]}, True),
        ({"exits": [KILLED], "exit_code": 137}, False),
        ({"reported": [said("RANK_KILLED", "ended by SIGTERM")], "exits": [gone(rank=1, exit_code=143)]}, False),
        ({"exit_code": -9}, False),
        ({"custom": True, "exits": [gone()], "exit_code": 1}, False),
    ],
)
def test_ranks_that_lost_others_end_as_a_consequence_and_those_that_were_killed_do_not(seen, follows):
    found = Observations(**{"custom": False, **seen})

    assert is_consequence(found, judge(found)) is follows


def test_an_end_begins_with_the_first_sign_of_it():
    seen = Observations(custom=True)

    for at in (100.0, 103.0):
        seen.ends(at)

    assert seen.ends_since == 100.0
