"""Running a script that uses `trainyard.hooks`, under a supervisor and alone."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.trainers.supervision import ROOT, Ended, FakeSupervisor

LOOP = """
import json, pathlib, sys, time
from trainyard import hooks
run = hooks.init()
start = 0
if (path := run.resume_checkpoint()) is not None:
    start = json.loads((pathlib.Path(path) / "state.json").read_text())
total = int(run.hyperparameters.get("steps", 5))
for step in range(start + 1, total + 1):
    run.log_metrics({"loss": 1 / step}, step=step)
    run.progress(step, total, tokens=step * 10)
    time.sleep(float(run.hyperparameters.get("seconds", 0)))
    stop = run.should_stop()
    if stop or run.should_checkpoint():
        with run.checkpoint(step=step, metrics={"loss": 1 / step}) as path:
            (pathlib.Path(path) / "state.json").write_text(json.dumps(step))
    if stop:
        print("stopped", step, run.stop_reason)
        sys.exit()
(pathlib.Path(run.output_dir) / "model.bin").write_text("weights")
"""


def supervised(
    tmp_path: Path, script: str, *, when: Any = (), failure: str | None = None, timeout: float = 20, **spec: Any
) -> Ended:
    """Run a script as one attempt."""
    run_dir, path = tmp_path / "run", tmp_path / "train.py"
    path.write_text(script)
    supervisor = FakeSupervisor(run_dir, tmp_path / "storage", list(when), failure)
    document = {
        "job_id": "job-1",
        "attempt": 1,
        "run_dir": str(run_dir),
        "framework": "CUSTOM",
        "training_type": "SFT",
        "hyperparameters": {},
        "data_paths": ["/data/a.txt"],
        "data_config": {"seed": 3},
        "model_path": "",
        "world_size": 1,
        "threads_per_rank": 1,
        "resume_checkpoint": "",
        **spec,
    }
    return supervisor.run([sys.executable, str(path)], document, timeout_seconds=timeout)


def alone(tmp_path: Path, script: str, **options: Any) -> "subprocess.CompletedProcess[str]":
    """Run a script without any supervisor."""
    path = tmp_path / "train.py"
    path.write_text(script)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, str(path)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        **options,
    )
