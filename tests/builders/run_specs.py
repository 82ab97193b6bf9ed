"""Run specifications with sensible defaults."""

from pathlib import Path
from typing import Any

from trainyard.protocol.run_spec import RunSpec

REQUIRED: dict[str, Any] = {"run_dir": Path("/run"), "framework": "CUSTOM", "training_type": ""}


def make_run_spec(**values: Any) -> RunSpec:
    return RunSpec(**{**REQUIRED, **values})
