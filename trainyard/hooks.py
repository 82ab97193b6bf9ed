"""What a training script of your own may ask of Trainyard; standard library only.

    from trainyard import hooks

    run = hooks.init()
    start = 0
    if (path := run.resume_checkpoint()) is not None:
        start = load(path)
    for step in range(start + 1, total + 1):
        loss = train_one_step()
        run.log_metrics({"loss": loss}, step=step)
        run.progress(step, total)
        stop = run.should_stop(step=step)
        if stop or step % 100 == 0 or run.should_checkpoint():
            with run.checkpoint(step=step, metrics={"loss": loss}) as path:
                save(path)
        if stop and run.should_stop():  # asked again: a pause that can't be saved is given up
            sys.exit()
    write_model(run.output_dir)

The run succeeds when every rank ends with exit code 0. Outside Trainyard the same script runs as
it is: it prints its metrics and keeps its checkpoints and output in ./trainyard-run/, from
where the next start resumes; remove that folder to start from scratch.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from trainyard._hooks.run import Run
from trainyard._hooks.script import start

__all__ = ["Run", "init"]

_current: Run | None = None


def init(
    *,
    can_checkpoint: bool = False,
    hyperparameters: Mapping[str, Any] | None = None,
    data_paths: Sequence[str] = (),
    model_path: str = "",
) -> Run:
    """Connect this process to its job and return the run; calling it again returns the same.

    Call it on every rank, early. `can_checkpoint=True` declares that the script saves when `should_stop` or
    `should_checkpoint` requests it, so that it may be paused without loss. The declaration is optional: the first use
    of `resume_checkpoint` or `checkpoint` implies it. The other arguments are defaults for values that the job does not
    set, and the only values outside Trainyard. Values of `run.hyperparameters` that come from the job are strings.
    """
    global _current  # noqa: PLW0603  (one process is one rank of one run)
    if _current is None:
        defaults = {
            "hyperparameters": dict(hyperparameters or {}),
            "data_paths": list(data_paths),
            "model_path": model_path,
        }
        _current = start(defaults, can_checkpoint=can_checkpoint)
    return _current
