"""A custom script on one rank: real processes with `trainyard.hooks`, under a supervisor and alone."""

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.trainers.supervision import ROOT, FakeSupervisor, at_step
from tests.unit.client.hook_scripts import LOOP, alone, supervised
from trainyard.protocol import checkpoint_manifest


def test_complete_run_reports_everything_and_its_result(tmp_path):
    ended = supervised(tmp_path, LOOP)

    assert ended.exit_codes == [0]
    assert ended.messages[0]["type"] == "hello"
    assert ended.phases == ["TRAINING"]
    assert ended.series("loss") == {step: 1 / step for step in range(1, 6)}
    assert ended.of_type("progress")[-1] == {
        "type": "progress",
        "rank": 0,
        "step": 5,
        "total_steps": 5,
        "epoch": None,
        "total_epochs": None,
        "tokens": 50,
    }
    assert ended.messages[-1] == ended.result
    assert ended.result["stopped"] is None
    assert (ended.result["step"], ended.result["tokens"]) == (5, 50)
    assert ended.result["final_metrics"] == {"loss": 0.2}
    assert ended.result["weight_files"] == ["model.bin"]
    assert ended.result["output"] == str(tmp_path / "run" / "output")


def test_run_knows_what_the_job_says(tmp_path):
    script = """
from trainyard import hooks
run = hooks.init(hyperparameters={"lr": "1", "decay": "2"}, data_paths=["mine"], model_path="own")
assert hooks.init() is run
assert run.hyperparameters == {"lr": "3", "decay": "2"}, run.hyperparameters
assert run.data_paths == ["/data/a.txt"]
assert run.data_config == {"seed": 3}
assert run.output_config == {"checkpoint": {"save_steps": 7}}
assert run.training_config == {"evaluation": {"strategy": "no"}}
assert run.model_path == "own"
assert (run.rank, run.world_size) == (0, 1)
assert run.resume_checkpoint() is None
assert not run.should_stop()
assert not run.should_checkpoint()
"""
    said: dict[str, Any] = {
        "output_config": {"checkpoint": {"save_steps": 7}},
        "training_config": {"evaluation": {"strategy": "no"}},
    }
    ended = supervised(tmp_path, script, hyperparameters={"lr": "3"}, **said)

    assert ended.logs == [""]
    assert ended.exit_codes == [0]
    assert ended.result["output"] == ""


@pytest.mark.parametrize("kind", ["pause", "requeue", "cancel"])
def test_stop_is_followed_at_the_next_step_with_a_checkpoint(tmp_path, kind):
    values = {"steps": "2000", "seconds": "0.01"}
    ended = supervised(tmp_path, LOOP, when=[(at_step(3), {"type": kind})], hyperparameters=values)

    step = ended.result["step"]
    assert ended.exit_codes == [0]
    assert ended.result["stopped"] == kind
    assert ended.result["weight_files"] == []
    assert 3 <= step < 1000
    (checkpoint,) = ended.checkpoints
    assert checkpoint_manifest.verify(checkpoint).step == step
    assert json.loads((checkpoint / "state.json").read_text()) == step


def test_result_comes_after_the_checkpoint_is_stored(tmp_path):
    values = {"steps": "2000", "seconds": "0.01"}
    ended = supervised(tmp_path, LOOP, when=[(at_step(1), {"type": "pause"})], hyperparameters=values)

    kinds = [message["type"] for message in ended.messages if message["type"] in ("checkpoint", "result")]
    assert kinds == ["checkpoint", "result"]
    assert len(ended.checkpoints) == 1


def test_stop_whose_checkpoint_is_lost_is_a_failure(tmp_path):
    values = {"steps": "2000", "seconds": "0.01"}
    when = [(at_step(1), {"type": "pause"})]
    ended = supervised(tmp_path, LOOP, when=when, failure="disk full", hyperparameters=values)

    (error,) = ended.of_type("error")
    assert ended.exit_codes == [1]
    assert ended.of_type("result") == []
    assert error["error_type"] == "STORAGE_ERROR"
    assert "disk full" in error["message"]


def test_checkpoint_on_request_does_not_stop(tmp_path):
    values = {"steps": "40", "seconds": "0.01"}
    ended = supervised(tmp_path, LOOP, when=[(at_step(2), {"type": "checkpoint"})], hyperparameters=values)

    assert ended.result["stopped"] is None
    assert ended.result["step"] == 40
    assert len(ended.checkpoints) == 1
    assert ended.phases == ["TRAINING", "CHECKPOINTING", "TRAINING"]


def test_lost_checkpoint_of_a_continuing_run_is_only_logged(tmp_path):
    values = {"steps": "40", "seconds": "0.01"}
    when = [(at_step(2), {"type": "checkpoint"})]
    ended = supervised(tmp_path, LOOP, when=when, failure="disk full", hyperparameters=values)

    assert ended.exit_codes == [0]
    assert ended.result["step"] == 40
    assert "disk full" in ended.logs[0]


def test_resumed_run_continues_from_its_checkpoint(tmp_path):
    (tmp_path / "ckpt").mkdir()
    (tmp_path / "ckpt" / "state.json").write_text("3")

    ended = supervised(tmp_path, LOOP, resume_checkpoint=str(tmp_path / "ckpt"), resume_step=3)

    assert sorted(ended.series("loss")) == [4, 5]


def test_block_that_raises_leaves_nothing(tmp_path):
    script = """
from trainyard import hooks
run = hooks.init()
with run.checkpoint(step=1) as path:
    open(path + "/half", "w").close()
    raise ValueError("broken")
"""
    ended = supervised(tmp_path, script)

    (error,) = ended.of_type("error")
    assert ended.exit_codes == [1]
    assert ended.checkpoints == []
    assert list((tmp_path / "run" / "work").iterdir()) == []
    assert error["error_type"] == "SCRIPT_ERROR"
    assert error["message"] == "ValueError: broken"
    assert "train.py" in error["stack"]
    assert "broken" in ended.logs[0]
    assert ended.of_type("result") == []


def test_empty_checkpoint_is_an_error_of_the_script(tmp_path):
    script = "from trainyard import hooks\nrun = hooks.init()\nwith run.checkpoint(step=1):\n    pass\n"
    ended = supervised(tmp_path, script)

    assert ended.exit_codes == [1]
    assert "empty" in ended.of_type("error")[0]["message"]


def test_memory_error_is_named(tmp_path):
    ended = supervised(tmp_path, "from trainyard import hooks\nhooks.init()\nraise MemoryError\n")

    assert ended.of_type("error")[0]["error_type"] == "HOST_OUT_OF_MEMORY"


def test_sigterm_ends_the_script_and_removes_the_unfinished_checkpoint(tmp_path):
    script = """
import os, signal, time
from trainyard import hooks
run = hooks.init()
with run.checkpoint(step=1) as path:
    open(path + "/half", "w").close()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(20)
"""
    ended = supervised(tmp_path, script)

    assert ended.exit_codes == [143]
    assert ended.of_type("error")[0]["error_type"] == "RANK_KILLED"
    assert ended.of_type("result") == []
    assert list((tmp_path / "run" / "work").iterdir()) == []


@pytest.mark.parametrize(
    ("call", "declared"),
    [
        ("hooks.init()", [False]),
        ("hooks.init(can_checkpoint=True)", [True]),
        ("hooks.init().resume_checkpoint()", [False, True]),
    ],
)
def test_ability_to_checkpoint_is_declared_or_shown(tmp_path, call, declared):
    ended = supervised(tmp_path, f"from trainyard import hooks\n{call}\n")

    assert [message["can_checkpoint"] for message in ended.of_type("hello")] == declared


def test_child_that_the_script_forks_reports_nothing(tmp_path):
    script = """
import os, sys
from trainyard import hooks
hooks.init()
if os.fork() == 0:
    sys.exit()
os.wait()
"""
    ended = supervised(tmp_path, script)

    assert len(ended.of_type("result")) == 1


def test_script_whose_supervisor_is_gone_ends(tmp_path):
    script = """
import time
from trainyard import hooks
run = hooks.init()
run.log_metrics({"loss": 1}, step=1)
while not run.should_stop():
    time.sleep(0.01)
run.log_metrics({"loss": 1}, step=2)
"""

    class Vanishing(FakeSupervisor):
        def _handle(self, message):
            super()._handle(message)
            if message["type"] == "metric":
                for client in self._clients:
                    client.shutdown(2)

    path = tmp_path / "train.py"
    path.write_text(script)
    spec = {
        "job_id": "j",
        "attempt": 1,
        "run_dir": str(tmp_path / "run"),
        "framework": "CUSTOM",
        "training_type": "SFT",
    }
    supervisor = Vanishing(tmp_path / "run", tmp_path / "storage")
    ended = supervisor.run([sys.executable, str(path)], {**spec, "world_size": 1, "threads_per_rank": 1})

    assert ended.exit_codes == [1]
    assert "ChannelClosed" in ended.logs[0]


def test_script_works_outside_trainyard_and_resumes(tmp_path):
    first = alone(tmp_path, LOOP.replace("run.should_checkpoint()", "step == 3").replace("total = ", "total = 3 or "))
    second = alone(tmp_path, LOOP)

    assert "step 3  loss=0.333333" in first.stdout
    assert "finished after step 3" in first.stdout
    assert "step 3 " not in second.stdout
    assert "step 4 " in second.stdout
    assert (tmp_path / "trainyard-run" / "output" / "model.bin").exists()


def test_sigterm_outside_trainyard_means_pause(tmp_path):
    script = LOOP.replace("for step", "import os, signal; os.kill(os.getpid(), signal.SIGTERM)\nfor step")
    ended = alone(tmp_path, script)

    assert ended.returncode == 0
    assert "stopped 1 pause" in ended.stdout
    assert (tmp_path / "trainyard-run" / "checkpoints" / "step-00000001").is_dir()


def test_hooks_need_the_standard_library_only():
    code = "import sys; import trainyard.hooks; print([m for m in sys.modules if m in ('torch','app','workers')])"
    ended = subprocess.run(
        [sys.executable, "-S", "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(ROOT)},
    )

    assert ended.stdout.strip() == "[]"


def test_exception_outside_trainyard_is_raised_unchanged(tmp_path):
    ended = alone(tmp_path, "from trainyard import hooks\nhooks.init()\nraise ValueError('x')\n")

    assert ended.returncode == 1
    assert "ValueError: x" in ended.stderr


def test_whole_numbers_may_come_as_floats(tmp_path):
    script = """
from trainyard import hooks
run = hooks.init()
run.progress(5.0, 1e1, epoch=1, tokens=1e6)
for wrong in (5.5, float("nan"), "5", None):
    try:
        run.progress(wrong)
    except TypeError as error:
        print(error)
"""
    ended = supervised(tmp_path, script)

    (progress,) = ended.of_type("progress")[-1:]
    assert [progress["step"], progress["total_steps"], progress["tokens"]] == [5, 10, 1_000_000]
    assert not any(isinstance(progress[name], float) for name in ("step", "total_steps", "tokens"))
    assert ended.logs[0].count("step must be a whole number") == 4
