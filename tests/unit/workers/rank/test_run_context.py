"""The run context of a built-in trainer, and its local double for a plain script."""

import errno
import re
import threading

import pytest

from trainyard._hooks.local_session import LocalSession
from trainyard.protocol import checkpoint_manifest
from trainyard.protocol.channel import ChannelClosed
from trainyard.protocol.commands import (
    AdapterNotLoaded,
    AdapterReady,
    AdapterRefused,
    CheckpointNotSaved,
    ModelAnswered,
    ReceivedCommands,
    Stop,
    parse,
)
from trainyard.protocol.session import Identity
from workers.rank.run_context import NotAnswered, Progress, Result, RunContext, RunSpec, Saved, local_run

DOCUMENT = {
    "job_id": "job-1",
    "attempt": 2,
    "framework": "HF_TRAINER",
    "training_type": "SFT",
    "hyperparameters": {"learning_rate": 1.0},
    "model_path": "/model",
    "data_paths": ["/a", "/b"],
    "output_config": None,
    "channel": "/somewhere",
    "world_size": 2,
}


class SlowSession(LocalSession):
    """Commits once the test lets it; records the commits and how the run ended."""

    def __init__(self, run_dir):
        super().__init__(Identity(run_dir=run_dir))
        self.begun, self.may_continue = threading.Event(), threading.Event()
        self.problem = None
        self.committed = []

    def commit_checkpoint(self, tmp_dir, saved):
        self.begun.set()
        self.may_continue.wait(10)
        if self.problem is not None:
            raise self.problem
        self.committed.append(saved.step)

    def finish(self, result):
        self.committed.append("finish")

    def fail(self, error_type, message, stack):
        self.committed.append("fail")


@pytest.fixture
def context(tmp_path):
    return local_run(RunSpec.from_document({**DOCUMENT, "run_dir": str(tmp_path / "run")}))


def test_document_of_a_supervisor_is_read_and_gaps_are_filled(context, tmp_path):
    spec = context.spec

    assert spec.run_dir == tmp_path / "run"
    assert spec.data_paths == ("/a", "/b")
    assert (spec.world_size, spec.attempt, spec.threads_per_rank) == (2, 2, 1)
    assert spec.output_config == {}
    assert context.resume_manifest() is None


def spec_in(run_dir):
    return RunSpec.from_document({**DOCUMENT, "run_dir": str(run_dir)})


def draft(context, name, text="weights"):
    directory = context.work_dir / name
    directory.mkdir()
    (directory / "model").write_text(text)
    return directory


def test_local_double_prints_and_keeps_the_newest_checkpoints(context, capsys):
    context.phase("TRAINING")
    context.report_progress(Progress(step=1))
    for step in range(1, 6):
        context.report_metrics(step, {"loss": 1 / step})
        context.commit_checkpoint(draft(context, f"draft-{step}"), Saved(step=step, epoch=0.5))
    context.finish(Result(step=5))

    kept = sorted((context.spec.run_dir / "checkpoints").iterdir())
    assert [path.name for path in kept] == ["step-00000003", "step-00000004", "step-00000005"]
    assert checkpoint_manifest.verify(kept[-1]).epoch == 0.5
    assert "step 4  loss=0.25" in capsys.readouterr().out


def test_same_step_is_replaced_by_the_local_double(context):
    for text in ("old", "new"):
        context.commit_checkpoint(draft(context, text, text), Saved(step=1))
    context.finish(Result(step=1))

    assert (context.spec.run_dir / "checkpoints" / "step-00000001" / "model").read_text() == "new"


def test_training_continues_while_a_checkpoint_is_handed_over(tmp_path):
    context = RunContext(spec_in(tmp_path), session := SlowSession(tmp_path))

    context.commit_checkpoint(tmp_path, Saved(step=1))

    assert session.begun.wait(5)
    assert session.committed == []
    session.may_continue.set()
    context.commit_checkpoint(tmp_path, Saved(step=2))
    assert session.committed[:1] == [1], "one at a time"
    context.finish(Result(step=2))
    assert session.committed == [1, 2, "finish"]


def test_a_checkpoint_that_failed_fails_the_run_at_the_next_one_or_at_its_end(tmp_path):
    context = RunContext(spec_in(tmp_path), session := SlowSession(tmp_path))
    session.may_continue.set()
    session.problem = OSError("no space left")

    context.commit_checkpoint(tmp_path, Saved(step=1))
    with pytest.raises(OSError, match="no space"):
        context.commit_checkpoint(tmp_path, Saved(step=2))
    context.commit_checkpoint(tmp_path, Saved(step=3))
    with pytest.raises(OSError, match="no space"):
        context.finish(Result(step=3))

    assert session.committed == []


def test_a_run_that_fails_still_hands_its_checkpoint_over(tmp_path):
    context = RunContext(spec_in(tmp_path), session := SlowSession(tmp_path))
    context.commit_checkpoint(tmp_path, Saved(step=1))
    threading.Timer(0.1, session.may_continue.set).start()

    context.fail("TRAINING_ERROR", "no", "stack")

    assert session.committed == [1, "fail"]


def test_local_run_has_no_control_requests(context):
    assert context.stop is None
    assert context.checkpoint_requests == 0
    assert context.rank == 0
    assert context.output_dir.is_dir()


class Storage(LocalSession):
    """Raises the configured problem, if any, and records all that the context reports."""

    def __init__(self, run_dir, problem=None):
        super().__init__(Identity(run_dir=run_dir))
        self.problem, self.heard = problem, []

    def wait_stored(self):
        if self.problem is not None:
            raise self.problem

    def note(self, reason, message, data):
        self.heard.append((reason, message, data))

    def section(self, name, *, max_seconds=None):
        self.heard.append(name)

    def pause_failed(self, number, message):
        self.heard.append((number, message))


@pytest.mark.parametrize(
    ("problem", "answer"), [(None, ""), (CheckpointNotSaved("quota"), "CheckpointNotSaved: quota")]
)
def test_checkpoint_is_secure_only_in_storage(tmp_path, problem, answer):
    context = RunContext(spec_in(tmp_path), Storage(tmp_path, problem))
    context.commit_checkpoint(draft(context, "draft"), Saved(step=1))

    assert context.secure() == answer


def test_checkpoint_that_could_not_be_written_is_not_secure_and_leaves_nothing(tmp_path):
    context = RunContext(spec_in(tmp_path), Storage(tmp_path))

    def write():
        raise OSError(errno.ENOSPC, "full")

    directory = draft(context, "draft")
    context.commit_checkpoint(directory, Saved(step=1), write)

    assert "full" in context.secure()
    assert not directory.exists()
    assert context.secure() == ""


def test_orphan_does_not_take_its_end_for_a_failed_pause(tmp_path):
    context = RunContext(spec_in(tmp_path), Storage(tmp_path, ChannelClosed("gone")))

    with pytest.raises(ChannelClosed):
        context.secure()


def test_failure_is_raised_as_soon_as_it_is_known_unless_it_is_excused(tmp_path):
    context = RunContext(spec_in(tmp_path), session := SlowSession(tmp_path))
    session.problem = OSError("no space left")
    context.commit_checkpoint(tmp_path, Saved(step=1))
    context.check()
    session.may_continue.set()
    context.rest()
    with pytest.raises(OSError, match="no space"):
        context.check()

    context.commit_checkpoint(tmp_path, Saved(step=2))
    context.excuse()
    context.check()


def test_notes_sections_and_failed_pauses_reach_the_session(tmp_path):
    context = RunContext(spec_in(tmp_path), session := Storage(tmp_path))
    context.note("NOT_BIT_EQUAL", "because", {"devices": 2})
    with context.section("loading"):
        session.heard.append("work")
    context.pause_failed(Stop("pause", save_checkpoint=True, number=2), "quota")

    assert session.heard == [("NOT_BIT_EQUAL", "because", {"devices": 2}), "loading", "work", None, (2, "quota")]


def test_request_that_was_given_up_no_longer_applies(tmp_path):
    context = RunContext(spec_in(tmp_path), session := Storage(tmp_path))
    session.commands.apply(parse({"type": "pause", "number": 1}))
    stop = context.stop
    assert stop is not None

    context.forget_stop(stop)
    assert context.stop is None
    session.commands.apply(parse({"type": "pause", "number": 1}))
    assert context.stop is None, "one rank may hear of it later than the others"
    session.commands.apply(parse({"type": "pause", "number": 2}))
    assert context.stop is not None


def test_adapter_of_a_bad_name_is_never_asked_for(context):
    with pytest.raises(AdapterNotLoaded, match="can't be an adapter's name"):
        context.fetch_adapter("../weights", job_id="job-1")


def test_local_run_has_no_adapters_of_jobs(context):
    with pytest.raises(AdapterNotLoaded, match="job-1"):
        context.fetch_adapter("mine", job_id="job-1")


def test_adapter_is_waited_for_and_the_end_of_the_run_ends_the_wait():
    received = ReceivedCommands()
    threading.Timer(0.1, received.apply, [AdapterReady("mine", "/run/adapters/mine")]).start()
    assert received.wait_adapter("mine") == "/run/adapters/mine"

    received.apply(AdapterRefused("other", "of another base"))
    with pytest.raises(AdapterNotLoaded, match="of another base"):
        received.wait_adapter("other")
    received.forget_adapter("other")
    threading.Timer(0.1, received.orphan).start()
    with pytest.raises(AdapterNotLoaded, match="the run ends"):
        received.wait_adapter("other")


@pytest.mark.parametrize("kind", ["drain", "requeue", "pause"])
def test_any_stop_ends_the_wait_for_an_adapter(kind):
    received = ReceivedCommands()
    threading.Timer(0.1, received.apply, [Stop(kind, save_checkpoint=False)]).start()

    with pytest.raises(AdapterNotLoaded, match="the run ends"):
        received.wait_adapter("mine")


class AskingSession(LocalSession):
    """Answers a model's requests with what the test says."""

    def __init__(self, run_dir, answer):
        super().__init__(Identity(run_dir=run_dir))
        self.answer = answer
        self.asked = []

    def ask_model(self, path, body):
        self.asked.append((path, body))
        return self.answer


def test_answer_of_a_model_is_its_body(tmp_path):
    session = AskingSession(tmp_path, ModelAnswered(number=0, status=200, body='{"choices": []}'))

    assert RunContext(spec_in(tmp_path), session).ask("/v1/completions", {"model": "m", "prompt": "é"}) == {
        "choices": []
    }
    assert session.asked == [("/v1/completions", '{"model": "m", "prompt": "\\u00e9"}')]


@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [
        (ModelAnswered(status=403, body='{"error": {"message": "not yours"}}'), 403, "not yours"),
        (ModelAnswered(status=502, body="<html>"), 502, "<html>"),
        (ModelAnswered(status=200, body="[]"), 200, "[]"),
        (ModelAnswered(status=500, body=""), 500, "it says nothing"),
        (None, 499, "the run ends"),
    ],
)
def test_model_that_does_not_answer_says_why(tmp_path, answer, status, said):
    with pytest.raises(NotAnswered, match=re.escape(said)) as refused:
        RunContext(spec_in(tmp_path), AskingSession(tmp_path, answer)).ask("/v1/completions", {})

    assert refused.value.http_status == status


def test_large_request_is_refused_where_it_is_made(tmp_path):
    with pytest.raises(NotAnswered) as refused:
        RunContext(spec_in(tmp_path), AskingSession(tmp_path, None)).ask("/v1/completions", {"prompt": "x" * (1 << 20)})

    assert refused.value.http_status == 413


def test_local_run_asks_no_model(context):
    with pytest.raises(NotAnswered, match="a local run has no gateway"):
        context.ask("/v1/completions", {})


def test_requests_to_models_are_answered_by_number_and_end_with_a_cancel():
    commands = ReceivedCommands()
    got: dict[int, ModelAnswered | None] = {}
    for number in range(3):
        commands.expect_model(number)
    threads = [
        threading.Thread(target=lambda n=number: got.setdefault(n, commands.wait_model(n))) for number in range(3)
    ]
    for thread in threads:
        thread.start()

    commands.apply(ModelAnswered(number=1, status=200, body="one"))
    threads[1].join(5)
    commands.apply(Stop("pause", save_checkpoint=True))
    commands.apply(ModelAnswered(number=0, status=200, body="zero"))
    threads[0].join(5)
    commands.apply(ModelAnswered(number=9, status=200, body="never asked"))
    commands.apply(Stop("cancel", save_checkpoint=False))
    threads[2].join(5)

    assert {number: each and each.body for number, each in got.items()} == {0: "zero", 1: "one", 2: None}
