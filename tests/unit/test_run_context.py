"""What a built-in trainer is given, and its double for a plain script."""

import pytest

from trainyard import _manifest
from workers.run_context import Progress, Result, RunSpec, Saved, local_run

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


def test_local_double_prints_and_keeps_the_newest_checkpoints(context, capsys):
    context.phase("TRAINING")
    context.report_progress(Progress(step=1))
    for step in range(1, 6):
        context.report_metrics(step, {"loss": 1 / step})
        (context.work_dir / "draft").mkdir()
        (context.work_dir / "draft" / "model").write_text("weights")
        path = context.commit_checkpoint(context.work_dir / "draft", Saved(step=step, epoch=0.5))
    context.finish(Result(step=5))

    kept = sorted(item.name for item in (context.spec.run_dir / "checkpoints").iterdir())
    assert kept == ["step-00000003", "step-00000004", "step-00000005"]
    assert _manifest.verify(path).epoch == 0.5
    assert "step 4  loss=0.25" in capsys.readouterr().out


def test_same_step_is_replaced_by_the_local_double(context):
    for text in ("old", "new"):
        (context.work_dir / "draft").mkdir()
        (context.work_dir / "draft" / "model").write_text(text)
        path = context.commit_checkpoint(context.work_dir / "draft", Saved(step=1))

    assert (context.spec.run_dir / "checkpoints" / "step-00000001" / "model").read_text() == "new"
    assert path.endswith("step-00000001")


def test_nobody_wishes_anything_of_a_local_run(context):
    assert context.stop is None
    assert context.checkpoint_requests == 0
    assert context.rank == 0
    assert context.output_dir.is_dir()
