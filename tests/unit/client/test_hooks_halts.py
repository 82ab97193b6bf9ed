"""Halts of a job's document in a script: exact on all ranks, saved, and refused where a script does not keep them."""

from typing import Any

import pytest

from tests.trainers.supervision import Ended, at_step
from tests.unit.client.hook_scripts import LOOP, supervised

STEPS = 12
ASKS = "    stop = run.should_stop()\n"
SAVES = '            (pathlib.Path(path) / "state.json")'
FAILS = '            raise OSError(28, "No space left on device")\n' + SAVES
ENDS = "    if stop:\n"
assert all(part in LOOP for part in (ASKS, SAVES, ENDS))
EXACT = LOOP.replace(ASKS, ASKS.replace("()", "(step=step)")).replace(ENDS, "    if stop and run.should_stop():\n")


def halting(tmp_path: Any, script: str, *at: int, **spec: Any) -> Ended:
    values = {"steps": str(STEPS), "seconds": "0.01", **spec.pop("values", {})}
    document = {"halt_at": {"unit": "steps", "at": list(at)}}
    return supervised(tmp_path, script, hyperparameters=values, training_config=document, **spec)


def last_lines(ended: Ended) -> set[str]:
    return {log.strip().splitlines()[-1] for log in ended.logs}


def error_of(ended: Ended, rank: int = 0) -> tuple[str, str]:
    error = next(each for each in ended.of_type("error") if each["rank"] == rank)
    return error["error_type"], error["message"]


@pytest.mark.parametrize("ranks", [1, 2])
def test_ranks_halt_at_the_step_without_a_message_and_save_there(tmp_path: Any, ranks: int) -> None:
    ended = halting(tmp_path, EXACT, 4, 8, world_size=ranks)

    assert ended.exit_codes == [0] * ranks, ended.logs
    assert last_lines(ended) == {"stopped 4 halt"}
    assert (ended.result["stopped"], ended.result["step"], ended.result["weight_files"]) == ("halt", 4, [])
    assert [path.name for path in ended.checkpoints] == ["0001-step-4"]
    assert sorted(ended.series("loss")) == [1, 2, 3, 4]


def test_run_that_starts_at_a_halt_goes_on_to_the_next(tmp_path: Any) -> None:
    (tmp_path / "state.json").write_text("4")
    ended = halting(tmp_path, EXACT, 4, 8, resume_checkpoint=str(tmp_path), resume_step=4)

    assert (last_lines(ended), sorted(ended.series("loss"))) == ({"stopped 8 halt"}, [5, 6, 7, 8])


def test_script_that_passes_no_step_halts_after_the_one_that_it_has_reported(tmp_path: Any) -> None:
    ended = halting(tmp_path, LOOP, 4)

    assert (last_lines(ended), ended.result["step"]) == ({"stopped 4 halt"}, 4)


def test_halts_ahead_can_be_read(tmp_path: Any) -> None:
    ended = halting(tmp_path, "from trainyard import hooks\nprint(hooks.init().halts)\n", 4, 8, resume_step=4)

    assert last_lines(ended) == {"(8,)"}


def test_halts_beyond_the_end_are_not_reached(tmp_path: Any) -> None:
    ended = halting(tmp_path, EXACT, 100)

    assert (ended.exit_codes, ended.result["stopped"], ended.result["step"]) == ([0], None, STEPS)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("failure", ["unstored", "unwritten"])
def test_halt_whose_checkpoint_fails_is_passed_by_all_ranks(tmp_path: Any, ranks: int, failure: str) -> None:
    script = EXACT if failure == "unstored" else EXACT.replace(SAVES, FAILS)
    ended = halting(tmp_path, script, 4, failure="no room" if failure == "unstored" else None, world_size=ranks)

    assert ended.exit_codes == [0] * ranks, ended.logs
    assert (ended.result["stopped"], ended.result["step"]) == (None, STEPS)
    (note,) = ended.of_type("note")
    assert (note["reason"], note["data"]) == ("CHECKPOINT_FAILED", {"step": 4})
    assert "continues past its halt" in note["message"]
    assert ended.of_type("pause_failed") == []


@pytest.mark.parametrize("late", [0, 1])
def test_pause_that_comes_at_a_failed_halt_is_followed_afterwards(tmp_path: Any, late: int) -> None:
    """One rank is at its halt before the other one has begun."""
    script = f"import os, time\nif os.environ['RANK'] == '{late}':\n    time.sleep(0.5)\n" + EXACT.replace(
        SAVES, "            if step == 4: raise OSError(28, 'full')\n" + SAVES
    )
    when = [(lambda message: message.get("phase") == "CHECKPOINTING", {"type": "pause"})]
    ended = halting(tmp_path, script, 4, when=when, world_size=2, values={"steps": "2000"})

    assert ended.exit_codes == [0, 0], ended.logs
    assert len(last_lines(ended)) == 1
    assert ended.result["stopped"] == "pause"
    assert ended.result["step"] > 4


def test_ranks_on_several_nodes_fail_where_they_can_not_agree_to_go_on(tmp_path: Any) -> None:
    script = "import os\nos.environ['NNODES'] = '2'\n" + EXACT
    ended = halting(tmp_path, script, 4, failure="no room", world_size=2)

    assert ended.exit_codes[0] == 1
    assert error_of(ended)[0] == "STORAGE_ERROR"
    assert "no room" in error_of(ended)[1]


@pytest.mark.parametrize("ranks", [1, 2])
def test_cancel_at_a_halt_stays_a_cancel(tmp_path: Any, ranks: int) -> None:
    waits = "    while step == 4 and run._session.commands.stop is None: time.sleep(0.01)\n" + ASKS
    script = EXACT.replace(ASKS.replace("()", "(step=step)"), waits.replace("()\n", "(step=step)\n"))
    ended = halting(tmp_path, script, 4, when=[(at_step(2), {"type": "cancel"})], world_size=ranks)

    assert ended.exit_codes == [0] * ranks, ended.logs
    assert ended.result["stopped"] == "cancel"


def test_script_that_does_not_ask_fails_at_its_next_step(tmp_path: Any) -> None:
    script = LOOP.replace(ASKS, "    stop = False\n")
    ended = halting(tmp_path, script, 4)

    assert ended.exit_codes == [1]
    assert error_of(ended)[0] == "INVALID_CONFIG"
    assert "step 5 is past 4" in error_of(ended)[1]
    assert "run.should_stop(step=…)" in error_of(ended)[1]


CATCHES = "    with contextlib.suppress(Exception):\n        run.log_metrics("


def test_script_that_catches_the_error_fails_at_its_end(tmp_path: Any) -> None:
    """It takes it for one of its metrics, and would be complete without having halted."""
    script = "import contextlib\n" + LOOP.replace("    run.log_metrics(", CATCHES).replace(ASKS, "    stop = False\n")
    script = script.replace("    run.progress(step, total, tokens=step * 10)\n", "")
    assert CATCHES in script
    assert "run.progress" not in script
    ended = halting(tmp_path, script, 4)

    assert ended.exit_codes == [1]
    assert error_of(ended)[0] == "INVALID_CONFIG"
    assert error_of(ended)[1].startswith(f"step {STEPS} is past 4, where the job halts")
    assert ended.of_type("result") == []


@pytest.mark.parametrize("metrics", ["", "    run.log_metrics({'loss': 1.0})\n    run.should_stop()\n"])
def test_script_that_reports_no_step_fails(tmp_path: Any, metrics: str) -> None:
    """Nothing says whether it has passed its halts."""
    script = f"from trainyard import hooks\nrun = hooks.init()\nfor step in range(12):\n    pass\n{metrics}"
    ended = halting(tmp_path, script, 4)

    assert ended.exit_codes == [1]
    assert error_of(ended)[0] == "INVALID_CONFIG"
    assert error_of(ended)[1].startswith("the job's document names steps at which it halts")
    assert "run.should_stop(step=…)" in error_of(ended)[1]


def test_steps_that_are_only_passed_to_should_stop_count(tmp_path: Any) -> None:
    script = "from trainyard import hooks\nrun = hooks.init()\nfor step in range(3):\n    run.should_stop(step=step)\n"
    ended = halting(tmp_path, script, 4)

    assert (ended.exit_codes, ended.result["stopped"]) == ([0], None)


def test_script_that_asks_too_rarely_fails(tmp_path: Any) -> None:
    ended = halting(tmp_path, EXACT.replace("    run.log", "    if step % 3:\n        continue\n    run.log"), 4)

    assert "step 6 is past 4" in error_of(ended)[1]


def test_script_that_goes_on_after_its_checkpoint_fails(tmp_path: Any) -> None:
    ended = halting(tmp_path, EXACT.replace("    if stop and run.should_stop():\n", "    if False:\n"), 4)

    assert "step 5 is past 4" in error_of(ended)[1]


def test_script_that_ends_without_a_checkpoint_fails(tmp_path: Any) -> None:
    ended = halting(tmp_path, EXACT.replace("if stop or run.should_checkpoint():", "if False:"), 4)

    assert ended.exit_codes == [1]
    assert error_of(ended)[0] == "INVALID_CONFIG"
    assert error_of(ended)[1].startswith("the script ended at its halt without saving a checkpoint of step 4")
    assert "run.checkpoint(step=4) when run.should_stop returns True" in error_of(ended)[1]


def test_checkpoint_of_another_step_does_not_count(tmp_path: Any) -> None:
    script = EXACT.replace("checkpoint(step=step,", "checkpoint(step=step - 1,")
    ended = halting(tmp_path, script, 4)

    assert error_of(ended)[0] == "INVALID_CONFIG"
    assert "halts at step 4, and saves step 3" in error_of(ended)[1]
    assert ended.checkpoints == []


def test_script_on_several_ranks_that_passes_no_step_is_told_so(tmp_path: Any) -> None:
    ended = halting(tmp_path, LOOP, 4, world_size=2)

    assert ended.exit_codes == [1, 1]
    assert {error_of(ended, rank)[0] for rank in range(2)} == {"INVALID_CONFIG"}
    assert "should_stop(step=…) on all ranks" in error_of(ended)[1]


BESIDE = """
import os
os.environ["TRAINYARD_RANK"] = "1"
from trainyard import hooks
run = hooks.init(hyperparameters={"own": 1})
run.progress(9)
print(run.should_stop(), run.halts, run.hyperparameters, run.training_config, run.resume_checkpoint(), run.model_path)
"""


@pytest.mark.parametrize("framework", ["HF_TRAINER", "CUSTOM"])
def test_script_beside_a_training_has_none_of_its_halts_and_settings(tmp_path: Any, framework: str) -> None:
    place = {"index": 0, "count": 1, "ranks": 1, "role_first_rank": 0, "role_world_size": 1}
    trains = {"role": "trainer", "program": "train", "first_rank": 0, **place}
    judges = {"role": "judge", "program": "script", "first_rank": 1, **place}
    resumes = {"resume_checkpoint": str(tmp_path), "resume_step": 2, "model_path": "/model"}

    ended = halting(tmp_path, BESIDE, 4, 8, framework=framework, instances=[trains, judges], **resumes)

    if framework == "CUSTOM":  # the scripts are the job
        assert error_of(ended, 1)[0] == "INVALID_CONFIG"
    else:
        assert (ended.exit_codes, last_lines(ended)) == ([0], {"False () {'own': 1} {} None /model"})
