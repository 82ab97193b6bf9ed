"""Weights of a checkpoint that ranks have divided, put together as an inference job does it."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file

from workers.rank.run_context import RunSpec, local_run
from workers.trainers.inference.divided_weights import join_weights


def joined(framework: str, checkpoint: str | Path, run_dir: Path, *, adapter: bool = False) -> Path:
    """The directory with the whole weights. Raises as `join_weights`."""
    spec = RunSpec(
        run_dir=run_dir,
        framework="TRANSFORMERS",
        training_type="BATCH",
        inference={"model": {"job_id": "job-1", "checkpoint_id": "ckpt-1", "divided": framework, "adapter": adapter}},
        weights_path=str(checkpoint),
    )
    context = local_run(spec)
    join_weights(context)
    return Path(context.spec.weights_path)


def weights_in(directory: Path) -> Mapping[str, torch.Tensor]:
    files = sorted(directory.glob("*.safetensors"))
    return {name: tensor for file in files for name, tensor in load_file(file).items()}


def check_equal(found: Mapping[str, torch.Tensor], exported: Mapping[str, torch.Tensor]) -> None:
    """Bit by bit; a weight that is tied to another may be there under both names."""
    assert set(exported) <= set(found)
    assert set(found) - set(exported) <= {"lm_head.weight"}
    for name, tensor in exported.items():
        assert found[name].dtype == tensor.dtype, name
        assert torch.equal(found[name], tensor), name
