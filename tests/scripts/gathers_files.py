"""A rank that writes two files, one of them longer than what is sent at once, and says how it went."""

import json
import os
import sys
from pathlib import Path

import torch.distributed as dist

from workers.trainers import checkpoint_shards

checkpoint_shards._CHUNK_BYTES = 1000
directory, failing = Path(sys.argv[1]), json.loads(sys.argv[2])
rank = os.environ["RANK"]
dist.init_process_group("gloo")
everyone = dist.new_group()
problem = OSError(28, "No space left on device") if rank == failing else None
files = [directory / f"{rank}-{size}" for size in (0, 2500)]
for path in files if problem is None else ():
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes([int(rank) + 1]) * int(path.name[2:]))
try:
    checkpoint_shards.gather_files(directory, files, problem, everyone)
    print("done")  # noqa: T201
except OSError as error:
    print(type(error).__name__, error.errno)  # noqa: T201
dist.barrier()
dist.destroy_process_group()
