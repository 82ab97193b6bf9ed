"""The parallel layout: which rank has which shard of the model and of the records."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.tensor_parallel.random import get_cuda_rng_tracker, model_parallel_cuda_manual_seed
from torch._C._distributed_c10d import HashStore
from transformers import set_seed

from app.domain.spec.frameworks.megatron import Parallelism
from workers.rank.run_context import RunSpec
from workers.rank.spec_sections import data_config
from workers.trainers.distributed import TIMEOUT


@dataclass(frozen=True, kw_only=True)
class RankPosition:
    """A rank's coordinates: its tensor, pipeline and data parallel index."""

    tensor: int
    pipeline: int
    data: int
    is_first_stage: bool
    is_last_stage: bool

    @property
    def is_reporter(self) -> bool:
        """Whether the rank reports its group's measurements."""
        return self.tensor == 0 and self.is_last_stage


def join_alone(spec: RunSpec) -> None:
    """Initialize a process group of one: Megatron requires groups even for a single rank."""
    if not dist.is_initialized():
        backend = "cpu:gloo,cuda:nccl" if spec.device_type == "cuda" else "gloo"
        dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)


@contextmanager
def divided(spec: RunSpec, layout: Parallelism) -> Iterator[None]:
    """Initialize the parallel groups, each with its own random state, for the duration of the block."""
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=layout.tensor,
        pipeline_model_parallel_size=layout.pipeline,
        distributed_timeout_minutes=int(TIMEOUT.total_seconds() / 60),
    )
    try:
        reseed(spec, 0)
        yield
    finally:
        parallel_state.destroy_model_parallel()


def rank_position() -> RankPosition:
    """The coordinates of this rank."""
    return RankPosition(
        tensor=parallel_state.get_tensor_model_parallel_rank(),
        pipeline=parallel_state.get_pipeline_model_parallel_rank(),
        data=parallel_state.get_data_parallel_rank(),
        is_first_stage=parallel_state.is_pipeline_first_stage(),
        is_last_stage=parallel_state.is_pipeline_last_stage(),
    )


def reseed(spec: RunSpec, step: int) -> None:
    """Seed the random state for a run that begins after `step`; ranks that drop different values get different
    seeds.
    """
    here = rank_position()
    # Spaced widely, because Megatron itself adds up to the number of tensor-parallel ranks.
    seed = data_config(spec).seed + 1_000_003 * step + 10_007 * here.pipeline + 100_003 * here.data
    set_seed(seed)
    model_parallel_cuda_manual_seed(seed, force_reset_rng=True)


def random_state() -> dict[str, object]:
    """The state for `set_random_state`."""
    found: dict[str, object] = {"cpu": torch.get_rng_state(), "tracked": get_cuda_rng_tracker().get_states()}
    if torch.cuda.is_available():
        found["cuda"] = torch.cuda.get_rng_state()
    return found


def set_random_state(state: dict[str, object]) -> None:
    torch.set_rng_state(state["cpu"])  # type: ignore[arg-type]
    get_cuda_rng_tracker().set_states(state["tracked"])
    if "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"])  # type: ignore[arg-type]
