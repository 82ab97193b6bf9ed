"""A custom training script for tests: counts steps, says each one aloud, saves and resumes its count."""

import json
import sys
import time
from pathlib import Path

from trainyard import hooks

run = hooks.init(can_checkpoint=True)
total = int(run.hyperparameters["steps"])
seconds = float(run.hyperparameters["step_seconds"])
save_every = int(run.hyperparameters.get("save_every", "10"))

done = 0
if (path := run.resume_checkpoint()) is not None:
    done = json.loads((Path(path) / "count.json").read_text())["done"]
for step in range(done + 1, total + 1):
    time.sleep(seconds)
    print(f"step {step} at {time.monotonic_ns()}", flush=True)  # noqa: T201  (what a script says is what the tests read)
    run.log_metrics({"loss": 1.0 / step}, step=step)
    run.progress(step, total)
    stop = run.should_stop()
    if stop or step % save_every == 0 or run.should_checkpoint():
        with run.checkpoint(step=step, metrics={"loss": 1.0 / step}) as folder:
            (Path(folder) / "count.json").write_text(json.dumps({"done": step}))
    if stop:
        sys.exit()
(Path(run.output_dir) / "answer.txt").write_text(f"counted to {total}\n")
