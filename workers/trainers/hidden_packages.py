"""Packages that a rank does without, although they are installed."""

import os
import shutil
import sys
import sysconfig
from collections.abc import Collection
from pathlib import Path

from app.domain.spec.frameworks.deepspeed import DEEPSPEED
from trainyard.protocol.run_spec import RunSpec

QLORA = "QLORA"
NO_QUANTIZATION = "none"


def leave_out(frameworks: Collection[str], methods: Collection[str]) -> None:
    """Let imports of what trainers of these frameworks and methods do without fail, as if it were not installed."""
    if QLORA not in methods:
        # peft imports it wherever it is installed, which costs most of a second and a context on the first GPU.
        _leave_out("bitsandbytes")
    if DEEPSPEED not in frameworks:
        # transformers and accelerate import it too, which takes several seconds.
        _leave_out("deepspeed")
    # trl and accelerate import it wherever it is installed, which takes more than a second; trackers send metrics.
    _leave_out("wandb")
    if not can_build_kernels():
        # trl computes losses on GPUs with its kernels wherever it is installed, and with PyTorch's elsewhere.
        _leave_out("triton")


def let_users_import() -> None:
    """Let code of users import what only our imports do without. Call it before such a file is loaded."""
    if not sys.modules.get("wandb", True):
        del sys.modules["wandb"]


def quantizes(spec: RunSpec) -> bool:
    """Whether the run loads its model in 4 bits."""
    asked = spec.inference.get("model", {}).get("quantization", NO_QUANTIZATION)
    return spec.training_type == QLORA or asked != NO_QUANTIZATION


def can_build_kernels() -> bool:
    """Whether Triton can build the programs that start its kernels: it takes a C compiler and Python's headers."""
    compiler = os.environ.get("CC") or shutil.which("clang") or shutil.which("gcc")
    return bool(compiler) and (Path(sysconfig.get_path("include")) / "Python.h").exists()


def _leave_out(package: str) -> None:
    sys.modules[package] = None  # type: ignore[assignment]
