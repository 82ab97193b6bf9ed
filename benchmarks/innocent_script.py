"""The job of a well-behaved project in `benchmarks/hostile.py`: a chain of digests that only the right steps give.

It also listens on a port of its loopback, as ranks do that meet there, and counts connections, which must be none.
"""

import hashlib
import json
import socket
import time
from pathlib import Path

from trainyard import hooks

PORT = 29500

run = hooks.init(can_checkpoint=True)
total, seconds = int(run.hyperparameters["steps"]), float(run.hyperparameters["step_seconds"])
listener = socket.create_server(("127.0.0.1", PORT))
listener.setblocking(False)
done, digest, strangers = 0, "", 0
if (path := run.resume_checkpoint()) is not None:
    state = json.loads((Path(path) / "state.json").read_text())
    done, digest = int(state["step"]), str(state["digest"])
for step in range(done + 1, total + 1):
    time.sleep(seconds)
    digest = hashlib.sha256(f"{digest} {step}".encode()).hexdigest()
    print("step", step, flush=True)
    run.log_metrics({"loss": 1.0 / step}, step=step)
    run.progress(step, total)
    try:
        listener.accept()[0].close()
        strangers += 1
    except BlockingIOError:
        pass
    if run.should_stop() or step % int(run.hyperparameters["save_every"]) == 0:
        with run.checkpoint(step=step, metrics={"loss": 1.0 / step}) as folder:
            (Path(folder) / "state.json").write_text(json.dumps({"step": step, "digest": digest}))
answer = {"steps": total, "digest": digest, "strangers": strangers}
(Path(run.output_dir) / "answer.json").write_text(json.dumps(answer))
