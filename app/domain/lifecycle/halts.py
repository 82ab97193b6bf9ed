"""Halts of a job's document: which step is one, for the ranks that stop there and for what is made of their end."""

from app.domain.spec.model import STEPS, HaltAt

_SAME_EPOCH = 1e-9  # an epoch is a sum of fractions


def is_halt(halts: HaltAt | None, *, step: int, epoch: float, total_steps: int | None) -> bool:
    """Whether the run halts after this step. Its last step is its normal end."""
    if halts is None or (total_steps is not None and step >= total_steps):
        return False
    if halts.unit == STEPS:
        return step in halts.at
    return completes_epoch(epoch) and round(epoch) in halts.at


def completes_epoch(epoch: float) -> bool:
    """Whether so many epochs end an epoch."""
    return abs(epoch - round(epoch)) < _SAME_EPOCH


def halted_at(step: int) -> str:
    """The reason of a job that is PAUSED because of a halt."""
    return f"halted at step {step}"
