"""How the records of one optimizer step are split over devices and forward passes; their number is constant."""

from dataclasses import dataclass

from workers.rank.run_context import RunContext
from workers.rank.spec_sections import data_config
from workers.trainers.failures import InvalidConfig

_MOST_NAMED = 12


@dataclass(frozen=True, kw_only=True)
class BatchPlan:
    """`batch_size` records per forward pass and device, `accumulation` passes per step, on `devices`."""

    batch_size: int
    accumulation: int
    devices: int
    is_halved: bool = False  # because of insufficient memory
    # Pad an epoch's records to a multiple of this, where ranks would stop earlier by themselves.
    padded_to_multiple_of: int = 1

    @property
    def records_per_step(self) -> int:
        """The effective batch size."""
        return self.batch_size * self.accumulation * self.devices


def requested_plan(context: RunContext, devices: int) -> BatchPlan:
    """The plan of the job's document."""
    data = data_config(context.spec)
    return BatchPlan(batch_size=data.batch_size, accumulation=data.gradient_accumulation_steps, devices=devices)


def batch_plan(context: RunContext, devices: int) -> BatchPlan:
    """A plan with the same records per step as before, whatever the current devices and memory.

    The batch size is the largest that divides a device's share and does not exceed the job's, halved once per
    out-of-memory failure. Raises InvalidConfig when the devices cannot split a step's records equally.
    """
    asked = requested_plan(context, devices)
    records = _records_per_step(context, asked)
    share, rest = divmod(records, asked.devices)
    if rest:
        fitting = [str(number) for number in range(1, records + 1) if records % number == 0]
        raise InvalidConfig(
            f"earlier steps of this job had {records} records, which {asked.devices} devices can't share equally: "
            f"set resource_config.gpu_count to one of {', '.join(fitting[:_MOST_NAMED])}"
        )
    halvings = int(context.spec.adjustments.get("batch_halvings") or 0)
    whole = _largest_part(share, asked.batch_size)
    batch = _largest_part(share, asked.batch_size >> halvings)
    return BatchPlan(
        batch_size=batch,
        accumulation=share // batch,
        devices=asked.devices,
        is_halved=halvings > 0,
        padded_to_multiple_of=whole * asked.devices if halvings and asked.devices > 1 else 1,
    )


def _largest_part(share: int, most: int) -> int:
    return next(size for size in range(max(1, min(most, share)), 0, -1) if share % size == 0)


def _records_per_step(context: RunContext, asked: BatchPlan) -> int:
    """Records per step of the checkpoint to resume, if it is this job's own; another job's do not matter."""
    manifest = context.resume_manifest()
    if manifest is None or context.taken_over() is not None:
        return asked.records_per_step
    before = asked.batch_size * asked.accumulation * manifest.world_size
    return int(manifest.data_position.get("records_per_step") or before)
