"""A custom training script for tests: takes memory of its GPU and holds it; what else it does a hyperparameter says."""

import os
import subprocess
import sys
import time
from pathlib import Path

import torch

from trainyard import hooks

HOLD = "import sys, time, torch; held = torch.ones(int(sys.argv[1]) << 18, device='cuda'); time.sleep(600)"

run = hooks.init()
megabytes = int(run.hyperparameters["megabytes"])
files = sorted(path.name for path in Path("/dev").glob("nvidia[0-9]*"))
print("devices", torch.cuda.device_count(), os.environ["CUDA_VISIBLE_DEVICES"], *files, flush=True)  # noqa: T201  (read)
held = torch.ones(megabytes << 18, device="cuda")
if run.hyperparameters.get("leaves_child"):
    subprocess.Popen([sys.executable, "-c", HOLD, str(megabytes)], start_new_session=True, env={**os.environ})
if run.hyperparameters.get("asserts"):
    held[torch.tensor([held.numel()], device="cuda")] += 1
    torch.cuda.synchronize()
for step in range(1, int(run.hyperparameters.get("steps", "1")) + 1):
    held.mul_(1.0)
    torch.cuda.synchronize()
    time.sleep(0.2)
    run.log_metrics({"loss": 1.0}, step=step)
    run.progress(step)
    if run.should_stop():
        sys.exit()
(Path(run.output_dir) / "answer.txt").write_text("held\n")
