"""A training without mathematics: a chain of digests that only the right steps in the right order give.

Each finished step is reported to a witness outside of the system. Hyperparameters configure the rest:
`misbehave` (at the step `misbehave_at`, in the first attempt, or with `always` in every one).
"""

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from trainyard import hooks


def chain(digest: str, step: int) -> str:
    return hashlib.sha256(f"{digest} {step}".encode()).hexdigest()


def tell(what: str, step: int) -> None:
    """(job, attempt, rank, pid, process namespace, nanoseconds since boot, what, step) in one datagram."""
    words = (
        os.environ["TRAINYARD_JOB_ID"],
        os.environ["TRAINYARD_ATTEMPT"],
        run.rank,
        os.getpid(),
        Path("/proc/self/ns/pid").stat().st_ino,
        time.clock_gettime_ns(time.CLOCK_BOOTTIME),
        what,
        step,
    )
    witness.sendto(" ".join(map(str, words)).encode(), (host, int(port)))


def misbehave(how: str) -> None:
    if how == "hang":
        time.sleep(3600)
    elif how == "exit":
        os._exit(0)
    elif how == "raise":
        raise RuntimeError("the script fails as configured")
    elif how == "flood":
        for _ in range(100_000):
            print("x" * 100)  # noqa: T201  (the same)
    elif how == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    elif how == "daemon":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True)


run = hooks.init(can_checkpoint=True)
asked = run.hyperparameters
total, seconds = int(asked["steps"]), float(asked["step_seconds"])
save_every, weight_bytes = int(asked.get("save_every", "10")), int(asked.get("weight_bytes", "64"))
first_attempt = os.environ["TRAINYARD_ATTEMPT"] == "1"
misbehaves_at = int(asked.get("misbehave_at", "0")) if first_attempt or asked.get("always") else 0
host, port = str(asked["witness"]).rsplit(":", 1)
witness = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

done, digest = 0, ""
if (path := run.resume_checkpoint()) is not None:
    state = json.loads((Path(path) / "state.json").read_text())
    done, digest = int(state["step"]), str(state["digest"])
tell("start", done)
for step in range(done + 1, total + 1):
    time.sleep(seconds)
    if step == misbehaves_at:
        misbehave(str(asked["misbehave"]))
    digest = chain(digest, step)
    print("step", step, flush=True)  # noqa: T201  (what a script says is part of what must not be lost)
    run.log_metrics({"loss": 1.0 / step}, step=step)
    run.progress(step, total)
    tell("step", step)
    stop = run.should_stop()
    if stop or step % save_every == 0 or run.should_checkpoint():
        with run.checkpoint(step=step, metrics={"loss": 1.0 / step}) as folder:
            (Path(folder) / "state.json").write_text(json.dumps({"step": step, "digest": digest}))
            (Path(folder) / "weights.bin").write_bytes(digest[:1].encode() * weight_bytes)
        tell("saved", step)
    if stop:
        tell("stop", step)
        sys.exit()
tell("end", total)
if run.rank == 0:
    (Path(run.output_dir) / "answer.json").write_text(json.dumps({"steps": total, "digest": digest}))
