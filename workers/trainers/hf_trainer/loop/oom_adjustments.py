"""Reports deviations of a run from its document or from its earlier attempts."""

from collections.abc import Iterator
from contextlib import contextmanager

from trainyard.protocol.checkpoint_manifest import Manifest
from workers.rank.run_context import RunContext, RunSpec
from workers.rank.spec_sections import data_config
from workers.trainers.failures import HostOutOfMemory, OutOfMemory, error_type, is_out_of_memory
from workers.trainers.hf_trainer.loop.batch_plan import BatchPlan
from workers.trainers.hf_trainer.loop.collator import max_seq_length
from workers.trainers.hf_trainer.loop.lr_schedule import learning_rate_factor

NOT_BIT_EQUAL = "NOT_BIT_EQUAL"


@contextmanager
def explain_out_of_memory(spec: RunSpec, plan: BatchPlan) -> Iterator[None]:
    """Convert an out-of-memory error to OutOfMemory or HostOutOfMemory with the batch settings that caused it."""
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        on_host = error_type(error) == HostOutOfMemory.error_type
        kind, memory = (HostOutOfMemory, "the machine's") if on_host else (OutOfMemory, "the device's")
        raise kind(
            f"{memory} memory is not enough for batches of {plan.batch_size} records of up to {max_seq_length(spec)} "
            f"tokens: lower data_config.batch_size and raise gradient_accumulation_steps ({plan.accumulation} now), "
            f"lower data_config.max_seq_length, or set hyperparameters.gradient_checkpointing ({error})"
        ) from error


def report_adjustments(context: RunContext, plan: BatchPlan) -> None:
    """Log the adjustments, and add to the job's history what is no longer bitwise reproducible."""
    if context.rank != 0:
        return
    factor = learning_rate_factor(context.spec)
    if plan.is_halved:
        _print(
            f"after running out of memory: batches of {plan.batch_size} records, {plan.accumulation} of them per step "
            f"and device; {plan.records_per_step} records per step as before"
        )
    if factor != 1.0:
        _print(f"after the loss diverged: learning_rate times {factor:g}")
    manifest = context.resume_manifest()
    if manifest is not None and manifest.world_size != context.spec.world_size and context.taken_over() is None:
        _note_other_devices(context, plan, manifest)


def _note_other_devices(context: RunContext, plan: BatchPlan, manifest: Manifest) -> None:
    streamed = data_config(context.spec).streaming
    records = (
        "streamed records are redistributed, so that some near the checkpoint may be repeated or skipped"
        if streamed
        else "none is skipped or repeated"
    )
    context.note(
        NOT_BIT_EQUAL,
        f"resumed after step {manifest.step} with {context.spec.world_size} devices instead of {manifest.world_size}: "
        f"still {plan.records_per_step} records per step, {plan.accumulation} batches of {plan.batch_size} per device; "
        f"{records}. Sums are rounded in another order and dropout draws other numbers, so the results are no longer "
        "bitwise equal",
        {
            "step": manifest.step,
            "devices_before": manifest.world_size,
            "devices": context.spec.world_size,
            "batch_size": plan.batch_size,
            "gradient_accumulation_steps": plan.accumulation,
            "records_per_step": plan.records_per_step,
        },
    )


def _print(text: str) -> None:
    print(text, flush=True)  # noqa: T201  (the job's log is stdout)
