"""A pause whose checkpoint cannot be saved: every rank continues, and the run reports the failed pause."""

import pytest

from tests.trainers.supervision import FakeSupervisor, at_step
from tests.unit.client.hook_scripts import LOOP, supervised
from trainyard.protocol.commands import ReceivedCommands, Stop, parse

ASKS_AGAIN = LOOP.replace("    if stop:\n", "    if stop and run.should_stop():\n")
SAVES = '            (pathlib.Path(path) / "state.json")'
assert ASKS_AGAIN != LOOP


def slow(steps: int) -> dict[str, str]:
    return {"steps": str(steps), "seconds": "0.01"}


def test_run_continues_when_its_checkpoint_is_not_stored(tmp_path):
    ended = supervised(
        tmp_path, ASKS_AGAIN, when=[(at_step(3), {"type": "pause"})], failure="no room", hyperparameters=slow(60)
    )

    (failed,) = ended.of_type("pause_failed")
    assert "no room" in failed["message"]
    assert ended.exit_codes == [0]
    assert (ended.result["stopped"], ended.result["step"]) == (None, 60)


def test_run_continues_when_the_script_can_not_write(tmp_path):
    script = ASKS_AGAIN.replace(SAVES, '            raise OSError(28, "No space left on device")\n' + SAVES)
    ended = supervised(tmp_path, script, when=[(at_step(3), {"type": "pause"})], hyperparameters=slow(60))

    assert "No space left" in ended.of_type("pause_failed")[0]["message"]
    assert ended.result["step"] == 60
    assert "No space left" in ended.logs[0]
    assert not list((tmp_path / "run" / "work").glob("*.tmp"))


def test_forced_pause_ends_without_its_checkpoint(tmp_path):
    when = [(at_step(3), {"type": "pause", "force": True})]
    ended = supervised(tmp_path, ASKS_AGAIN, when=when, failure="no room", hyperparameters=slow(2000))

    assert ended.of_type("pause_failed") == []
    assert ended.exit_codes == [0]
    assert ended.result["stopped"] == "pause"


def test_drain_ends_without_its_checkpoint(tmp_path):
    when = [(at_step(3), {"type": "requeue", "force": True})]
    ended = supervised(tmp_path, ASKS_AGAIN, when=when, failure="no room", hyperparameters=slow(2000))

    assert ended.of_type("pause_failed") == []
    assert ended.result["stopped"] == "requeue"


def test_script_that_ends_anyway_fails_with_the_reason(tmp_path):
    script = LOOP.replace(SAVES, '            raise OSError(28, "No space left on device")\n' + SAVES)
    ended = supervised(tmp_path, script, when=[(at_step(3), {"type": "pause"})], hyperparameters=slow(2000))

    (error,) = ended.of_type("error")
    assert ended.exit_codes == [1]
    assert error["error_type"] == "DISK_FULL"
    assert ended.of_type("result") == []


def test_unrequested_save_fails_the_script_as_before(tmp_path):
    script = ASKS_AGAIN.replace("run.should_checkpoint()", "step == 4").replace(
        SAVES, '            raise OSError(28, "No space left on device")\n' + SAVES
    )
    ended = supervised(tmp_path, script, hyperparameters=slow(60))

    assert ended.exit_codes == [1]
    assert ended.of_type("error")[0]["error_type"] == "DISK_FULL"
    assert ended.of_type("pause_failed") == []


class FailsOnce(FakeSupervisor):
    """Stores from the second checkpoint on."""

    def _store(self, message):
        self.checkpoint_failure = None if self.of("pause_failed") else "no room yet"
        super()._store(message)

    def of(self, type_):
        return [message for message in self.messages if message["type"] == type_]


def test_all_ranks_continue_together_and_stop_together_later(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.unit.client.hook_scripts.FakeSupervisor", FailsOnce)
    script = ASKS_AGAIN.replace('get("seconds", 0))', 'get("seconds", 0)) * (1 + 2 * run.rank)')
    when = [
        (at_step(10), {"type": "pause"}),
        (lambda message: message["type"] == "pause_failed", {"type": "pause", "number": 1}),
    ]
    ended = supervised(tmp_path, script, when=when, hyperparameters=slow(2000), world_size=2)

    assert ended.exit_codes == [0, 0], ended.logs
    assert len(ended.of_type("pause_failed")) == 1
    assert len({log.strip().splitlines()[-1] for log in ended.logs}) == 1
    assert ended.logs[1].startswith("stopped")
    assert ended.result["stopped"] == "pause"
    assert len(ended.checkpoints) == 1


def test_request_that_arrives_before_the_first_was_given_up_is_not_lost():
    commands = ReceivedCommands()
    first = Stop("pause", save_checkpoint=True)
    commands.apply(parse({"type": "pause"}))
    commands.apply(parse({"type": "pause", "number": 1}))
    assert commands.stop == first

    commands.forget(first)

    assert commands.stop == Stop("pause", save_checkpoint=True, number=1)
    commands.forget(first)
    assert commands.stop is not None


def test_first_pause_that_comes_after_it_was_given_up_is_not_followed():
    commands = ReceivedCommands()
    commands.forget(Stop("pause", save_checkpoint=True))

    commands.apply(parse({"type": "pause"}))

    assert commands.stop is None
    commands.apply(parse({"type": "pause", "number": 1}))
    assert commands.stop == Stop("pause", save_checkpoint=True, number=1)


def test_only_pauses_are_given_up():
    commands = ReceivedCommands()
    commands.apply(parse({"type": "cancel"}))
    commands.apply(parse({"type": "forget", "number": 0}))

    assert commands.stop == Stop("cancel", save_checkpoint=False)


@pytest.mark.parametrize("ranks", [1, 2])
def test_pause_that_the_platform_gives_up_is_not_followed_and_a_later_one_is(tmp_path, ranks):
    when = [
        (at_step(5), {"type": "pause"}),
        (at_step(5), {"type": "forget", "number": 0}),
        (at_step(61), {"type": "pause", "number": 1}),  # the step during which the request arrives may still finish
    ]
    ended = supervised(tmp_path, LOOP, when=when, hyperparameters=slow(2000), world_size=ranks)

    assert ended.exit_codes == [0] * ranks, ended.logs
    assert len({log.strip().splitlines()[-1] for log in ended.logs}) == 1
    assert (ended.result["stopped"], len(ended.checkpoints)) == ("pause", 1)
    assert ended.result["step"] > 60


def test_ranks_that_heard_only_of_its_end_follow_the_next_pause(tmp_path):
    when = [(at_step(5), {"type": "forget", "number": 0}), (at_step(30), {"type": "pause", "number": 1})]
    ended = supervised(tmp_path, LOOP, when=when, hyperparameters=slow(2000), world_size=2)

    assert ended.exit_codes == [0, 0], ended.logs
    assert ended.result["stopped"] == "pause"


def test_pause_given_up_during_its_save_is_over_at_the_next_check(tmp_path):
    when = [
        (at_step(5), {"type": "pause"}),
        (lambda message: message.get("phase") == "CHECKPOINTING", {"type": "forget", "number": 0}),
    ]
    script = ASKS_AGAIN.replace(SAVES, "            time.sleep(0.5)\n" + SAVES)
    ended = supervised(tmp_path, script, when=when, hyperparameters=slow(60), world_size=2)

    assert ended.exit_codes == [0, 0], ended.logs
    assert (ended.result["stopped"], ended.result["step"]) == (None, 60)


def test_pause_may_become_more_urgent():
    commands = ReceivedCommands()
    commands.apply(parse({"type": "pause"}))
    commands.apply(parse({"type": "pause", "force": True}))

    assert commands.stop == Stop("pause", save_checkpoint=True, force=True)
    commands.forget(Stop("pause", save_checkpoint=True))
    assert commands.stop is None


def test_sections_notes_and_stacks_are_announced(tmp_path):
    script = """
import os, pathlib, signal, time
from trainyard import hooks
run = hooks.init()
with run.section("warm-up", max_seconds=30):
    with run.section("within"):
        run.note("the cache is cold", reason="COLD_CACHE", files=3)
os.kill(os.getpid(), signal.SIGUSR2)
assert "File" in (pathlib.Path(os.environ["TRAINYARD_SPEC"]).parent / "stacks" / "rank-0.txt").read_text()
"""
    ended = supervised(tmp_path, script)

    assert ended.exit_codes == [0], ended.logs
    assert ended.messages[0]["dumps"] is True
    sections = [(message["name"], message["max_seconds"]) for message in ended.of_type("section")]
    assert sections == [("warm-up", 30), ("within", None), ("warm-up", 30), (None, None)]
    (note,) = ended.of_type("note")
    assert (note["reason"], note["message"], note["data"]) == ("COLD_CACHE", "the cache is cold", {"files": 3})


def test_last_step_before_a_crash_is_known(tmp_path):
    script = """
import os, time
from trainyard import hooks
run = hooks.init()
for step in range(1, 8):
    run.progress(step, 100)
time.sleep(1.2)  # longer than the newest progress is held back
os._exit(9)
"""
    ended = supervised(tmp_path, script)

    assert [message["step"] for message in ended.of_type("progress")][-1] == 7


def test_handler_of_the_scripts_own_stays(tmp_path):
    script = "import signal\nsignal.signal(signal.SIGUSR2, lambda *_: None)\n"
    ended = supervised(tmp_path, script + "from trainyard import hooks\nhooks.init()\n")

    assert ended.messages[0]["dumps"] is False
