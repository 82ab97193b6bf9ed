"""A custom training script for tests on several nodes: in each step the ranks add up what each of them has."""

import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist

from trainyard import hooks

run = hooks.init(can_checkpoint=True)
total = int(run.hyperparameters["steps"])
dist.init_process_group("gloo")
print("rank", dist.get_rank(), "meets at", os.environ["MASTER_ADDR"], flush=True)  # noqa: T201  (the tests read it)

done, weights = 0, torch.zeros(4)
if (path := run.resume_checkpoint()) is not None:
    state = json.loads((Path(path) / "state.json").read_text())
    done, weights = state["done"], torch.tensor(state["weights"])
for step in range(done + 1, total + 1):
    time.sleep(0.1)
    part = torch.full((4,), float(step * (dist.get_rank() + 1)))
    dist.all_reduce(part)
    weights += part
    run.log_metrics({"loss": 1.0 / step}, step=step)
    run.progress(step, total)
    if step % 10 == 0 or run.should_checkpoint():
        with run.checkpoint(step=step) as folder:
            (Path(folder) / "state.json").write_text(json.dumps({"done": step, "weights": weights.tolist()}))
dist.barrier()
dist.destroy_process_group()
(Path(run.output_dir) / "weights.json").write_text(json.dumps(weights.tolist()))
