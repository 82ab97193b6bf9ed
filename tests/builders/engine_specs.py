"""Run specifications of inference jobs, as engines read them, and their engines."""

from pathlib import Path
from typing import Any

from tests.builders.run_specs import make_run_spec
from trainyard.protocol.run_spec import RunSpec
from workers.trainers.inference.engines import load_engine


def engine_spec(model: Path | str, task: str = "generate", **values: Any) -> RunSpec:
    """A spec whose base model lies in this directory; `values` replace its fields."""
    section = {"task": {"type": task}, **values.pop("inference", {})}
    defaults = {"framework": "TRANSFORMERS", "training_type": "BATCH", "model_path": str(model), "inference": section}
    return make_run_spec(**{**defaults, **values})


def loaded_engine(spec: RunSpec) -> Any:
    """The engine of a spec; untyped, because a test knows which of its answers are no refusals."""
    return load_engine(spec)
