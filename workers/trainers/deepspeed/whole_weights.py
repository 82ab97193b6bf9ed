"""Puts the weights of a checkpoint that ZeRO has divided together: `python -m … CHECKPOINT DIRECTORY [--adapter]`.

A process of its own: DeepSpeed takes seconds to import, and jobs that use a model do without it.
"""

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from workers.trainers.weight_files import write_adapter, write_model

_LATEST = "latest"  # as `configuration.LATEST`
_WHOLE = "mp_rank_00_model_states.pt"  # of stages 1 and 2, in which every rank has all weights
_FIRST_PART = f"zero_pp_rank_0_{_WHOLE}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--adapter", action="store_true")
    asked = parser.parse_args()
    os.environ["DS_ACCELERATOR"] = "cpu"  # it would otherwise search for GPUs
    (write_adapter if asked.adapter else write_model)(whole_weights(asked.checkpoint), asked.directory)


def whole_weights(checkpoint: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """Each trained weight with its name in the model, in the dtype in which the ranks computed with it."""
    directory = checkpoint / (checkpoint / _LATEST).read_text(encoding="utf-8").strip()
    if (directory / _WHOLE).exists():
        state = _loaded(directory / _WHOLE)
        # The module has the names of frozen weights that are tied to others, too.
        wanted = {*state["buffer_names"], *(name for group in state["param_shapes"] for name in group)}
        # peft writes a trained weight that is tied to another under both names, and expects both.
        wanted |= {alias for alias, name in (state.get("shared_params") or {}).items() if name in wanted}
        yield from ((name, tensor.clone()) for name, tensor in state["module"].items() if name in wanted)
        return
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint  # noqa: PLC0415

    module = _loaded(directory / _FIRST_PART)["module"]
    masters = get_fp32_state_dict_from_zero_checkpoint(str(checkpoint), exclude_frozen_parameters=True, lazy_mode=True)
    for name, master in masters.items():
        held = module[name]
        # Of a parameter the module has its dtype alone, and of a buffer everything.
        yield name, held.clone() if isinstance(master, torch.Tensor) else master.contiguous().to(held.dtype)


def _loaded(path: Path) -> dict[str, Any]:
    # DeepSpeed pickles classes of its own; like a resumed training this runs in the sandbox of a job of the project.
    found: dict[str, Any] = torch.load(path, map_location="cpu", mmap=True, weights_only=False)
    return found


if __name__ == "__main__":
    main()
