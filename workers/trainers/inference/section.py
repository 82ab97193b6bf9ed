"""The section ``inference`` of a run specification, typed, and where its model lies; read also without torch."""

from pathlib import Path

from app.domain.spec.inference import Inference
from workers.rank.run_context import RunSpec


def inference_of(spec: RunSpec) -> Inference:
    return Inference.from_json(spec.inference)


def model_directory(spec: RunSpec) -> Path:
    """Where the model's own configuration lies; an adapter has none."""
    is_whole = spec.weights_path and not inference_of(spec).model.adapter
    return Path(spec.weights_path if is_whole else spec.model_path)
