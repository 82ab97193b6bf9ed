"""What a running job has done, in the words of its kind: steps, records, benchmarks or requests, and at which rate."""

import math
from collections.abc import Callable, Iterator, Mapping

from app.cli.output import duration
from app.domain.spec.kinds import BATCH, EVALUATION, FEATURES, REPLICA, TRAINING
from trainyard.client import Job

RATE = "records_per_second"


def kind_of(job: Job) -> str:
    return str(job.data.get("kind") or TRAINING)


def facts(job: Job) -> str:
    """``step 10/72  loss 1.412  0:58 left`` or ``41,200 of 120,000 records  1,310/s  1:00 left``."""
    found = [*_FACTS.get(kind_of(job), _of_training)(job)]
    if job.eta_seconds is not None and not job.is_terminal:
        found.append(f"{duration(job.eta_seconds)} left")
    return "  ".join(found)


def amount(job: Job) -> str:
    """What an ended job has done: ``72 steps``, ``120,000 records``, ``3 benchmarks``."""
    kind, count = kind_of(job), job.current_step
    if kind in (BATCH, FEATURES):
        return f"{count:,} records"
    if kind == EVALUATION:
        return "1 benchmark" if count == 1 else f"{count} benchmarks"
    if kind == REPLICA:
        return "drained" if job.status == "COMPLETED" else "not drained"
    return f"{count} steps"


def _of_training(job: Job) -> Iterator[str]:
    if job.total_steps:
        yield f"step {job.current_step}/{job.total_steps}"
    elif job.current_step:
        yield f"step {job.current_step}"
    loss = job.latest_metrics.get("loss")
    if isinstance(loss, int | float) and math.isfinite(loss):
        yield f"loss {loss:.3f}" if 0.01 <= abs(loss) < 10_000 else f"loss {loss:.3g}"


def _of_records(job: Job) -> Iterator[str]:
    if job.total_steps:
        yield f"{job.current_step:,} of {job.total_steps:,} records"
    rate = job.latest_metrics.get(RATE)
    if isinstance(rate, int | float) and math.isfinite(rate) and not job.is_terminal:
        yield f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2g}/s"


def _of_benchmarks(job: Job) -> Iterator[str]:
    if job.total_steps:
        yield f"{job.current_step} of {job.total_steps} benchmarks"


def _of_requests(job: Job) -> Iterator[str]:
    if job.status != "SERVING":
        return
    for name, words in (("in_flight", "in flight"), ("waiting", "waiting"), ("tokens_per_second", "tokens/s")):
        value = job.latest_metrics.get(name)
        if isinstance(value, int | float) and math.isfinite(value):
            yield f"{value:,.0f} {words}"


_FACTS: Mapping[str, Callable[[Job], Iterator[str]]] = {
    BATCH: _of_records,
    FEATURES: _of_records,
    EVALUATION: _of_benchmarks,
    REPLICA: _of_requests,
}
