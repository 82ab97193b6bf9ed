"""How the records of one optimizer step are divided among devices and forward passes; their number never changes."""

from dataclasses import dataclass

from app.domain.spec.defaults import BATCH_SIZE
from workers.rank.run_context import RunContext
from workers.trainers.failures import InvalidConfig

_MOST_NAMED = 12


@dataclass(frozen=True, kw_only=True)
class BatchPlan:
    """`batch_size` records in one forward pass on one device, `accumulation` of those in a step, on `devices`."""

    batch_size: int
    accumulation: int
    devices: int
    is_halved: bool = False  # for want of memory
    # An epoch's records are filled up to a multiple of this, where ranks would by themselves stop earlier.
    filled_up_to: int = 1

    @property
    def records_per_step(self) -> int:
        """The effective batch."""
        return self.batch_size * self.accumulation * self.devices


def asked_for(context: RunContext, devices: int) -> BatchPlan:
    """What the job's document says."""
    data = context.spec.data_config
    return BatchPlan(
        batch_size=int(data.get("batch_size") or BATCH_SIZE),
        accumulation=int(data.get("gradient_accumulation_steps") or 1),
        devices=devices,
    )


def batch_plan(context: RunContext, devices: int) -> BatchPlan:
    """The same records in every step as before, whatever has become of devices and memory.

    A batch is the largest that divides a device's share and is no larger than the job's, halved as often as it ran out
    of memory. Raises InvalidConfig when the devices can't share a step's records.
    """
    asked = asked_for(context, devices)
    records = _records_per_step(context, asked)
    share, rest = divmod(records, asked.devices)
    if rest:
        fitting = [str(number) for number in range(1, records + 1) if records % number == 0]
        raise InvalidConfig(
            f"the job has trained with {records} records in a step, which {asked.devices} devices can't share equally: "
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
        filled_up_to=whole * asked.devices if halvings and asked.devices > 1 else 1,
    )


def _largest_part(share: int, most: int) -> int:
    return next(size for size in range(max(1, min(most, share)), 0, -1) if share % size == 0)


def _records_per_step(context: RunContext, asked: BatchPlan) -> int:
    """Those of the checkpoint to go on from, if it is this job's own; another job's steps were its own affair."""
    manifest = context.resume_manifest()
    if manifest is None or context.taken_over() is not None:
        return asked.records_per_step
    before = asked.batch_size * asked.accumulation * manifest.world_size
    return int(manifest.data_position.get("records_per_step") or before)
