"""A job that only pretends to train: it counts, a step a second, and resumes from its checkpoint on any node.

For trying out how jobs are scheduled (docs/tutorials/share-a-cluster.md): it takes next to nothing of the machine.
"""

import json
import time
from pathlib import Path

from trainyard import hooks


def main() -> None:
    """Count to ``steps``, saving when asked to."""
    run = hooks.init(can_checkpoint=True)
    steps = int(run.hyperparameters["steps"])
    done = 0
    if (path := run.resume_checkpoint()) is not None:
        done = json.loads((Path(path) / "count.json").read_text(encoding="utf-8"))["done"]
    print(f"counts from step {done}", flush=True)
    for step in range(done + 1, steps + 1):
        time.sleep(1)
        run.progress(step, steps)
        stop = run.should_stop()
        if stop or run.should_checkpoint():
            with run.checkpoint(step=step) as path:
                (Path(path) / "count.json").write_text(json.dumps({"done": step}), encoding="utf-8")
        if stop and run.should_stop():  # asked again: a pause that can't be saved is given up
            print(f"saved after step {step} ({run.stop_reason})", flush=True)
            return
    (Path(run.output_dir) / "count.txt").write_text(f"{steps}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
