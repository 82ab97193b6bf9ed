"""Number of tokenizer threads: all of the job's threads while data is prepared, one during training."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from workers.rank.run_context import RunSpec

_SWITCH, _COUNT = "TOKENIZERS_PARALLELISM", "RAYON_NUM_THREADS"


@contextmanager
def all_threads(spec: RunSpec) -> Iterator[None]:
    """Inside, the tokenizer may use the threads of all ranks, which wait meanwhile."""
    before = os.environ.get(_SWITCH)
    # Read when the first of these threads starts.
    os.environ.setdefault(_COUNT, str(max(1, spec.threads_per_rank * spec.world_size)))
    os.environ[_SWITCH] = "true"
    try:
        yield
    finally:
        # During training they would compete for the CPU, and make forking data loader workers unsafe.
        os.environ[_SWITCH] = before or "false"
