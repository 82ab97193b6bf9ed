"""A custom script on several ranks: stopping and saving together."""

from tests.builders.run_specs import make_run_spec
from tests.trainers.supervision import at_step
from tests.unit.client.hook_scripts import LOOP, supervised
from trainyard._hooks.agreement import Agreement
from trainyard._hooks.local_session import LocalSession
from trainyard._hooks.run import Run
from trainyard.protocol import checkpoint_manifest
from trainyard.protocol.commands import parse
from trainyard.protocol.session import Identity


def test_ranks_stop_at_the_same_step(tmp_path):
    script = LOOP.replace('get("seconds", 0))', 'get("seconds", 0)) * (1 + 2 * run.rank)')
    values = {"steps": "2000", "seconds": "0.005"}
    ended = supervised(tmp_path, script, when=[(at_step(20), {"type": "pause"})], hyperparameters=values, world_size=2)

    assert ended.exit_codes == [0, 0]
    assert len(ended.checkpoints) == 1
    assert len({log.strip() for log in ended.logs}) == 1
    assert ended.logs[0].startswith("stopped")
    assert len(ended.of_type("done")) == 1


def test_ranks_write_one_checkpoint_together(tmp_path):
    script = """
import time
from trainyard import hooks
run = hooks.init()
time.sleep(0.1 * run.rank)
with run.checkpoint(step=1, all_ranks=True) as path:
    open(f"{path}/rank-{run.rank}", "w").close()
"""
    ended = supervised(tmp_path, script, world_size=2)

    (checkpoint,) = ended.checkpoints
    assert [entry.path for entry in checkpoint_manifest.verify(checkpoint).files] == ["rank-0", "rank-1"]
    assert checkpoint_manifest.verify(checkpoint).world_size == 2


def test_checkpoint_is_dropped_when_another_rank_fails_in_it(tmp_path):
    script = """
from trainyard import hooks
run = hooks.init()
try:
    with run.checkpoint(step=1, all_ranks=True) as path:
        open(f"{path}/rank-{run.rank}", "w").close()
        if run.rank == 1:
            raise ValueError("broken")
except (ValueError, RuntimeError) as error:
    print(error)
"""
    ended = supervised(tmp_path, script, world_size=2)

    assert ended.checkpoints == []
    assert "not every rank" in ended.logs[0]
    assert not list((tmp_path / "run" / "work").glob("*.tmp"))


def test_only_rank_0_saves_unless_asked_together(tmp_path):
    script = """
from trainyard import hooks
run = hooks.init()
with run.checkpoint(step=1) as path:
    open(f"{path}/rank-{run.rank}", "w").close()
"""
    ended = supervised(tmp_path, script, world_size=2)

    (checkpoint,) = ended.checkpoints
    assert [entry.path for entry in checkpoint_manifest.verify(checkpoint).files] == ["rank-0"]


def rank_of_two(directory, rank):
    session = LocalSession(Identity(run_dir=directory, rank=rank, world_size=2))
    return session.commands, Run(session, make_run_spec(), Agreement(directory / "agreement", rank, lambda: False))


def test_ranks_that_received_different_requests_name_the_same_reason(tmp_path):
    (first_commands, first), (second_commands, second) = rank_of_two(tmp_path, 0), rank_of_two(tmp_path, 1)

    first_commands.apply(parse({"type": "requeue"}))
    second_commands.apply(parse({"type": "pause"}))

    assert (first.should_stop(), second.should_stop()) == (True, True)
    assert first.stop_reason == second.stop_reason == "pause"


def test_rank_that_comes_late_learns_the_reason_from_the_others(tmp_path):
    commands, first = rank_of_two(tmp_path, 0)
    commands.apply(parse({"type": "pause"}))
    _, late = rank_of_two(tmp_path, 1)

    assert (first.should_stop(), late.should_stop()) == (True, True)
    assert late.stop_reason == "pause"
