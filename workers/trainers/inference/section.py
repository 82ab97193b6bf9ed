"""The section ``inference`` of a run specification, typed, and what follows from it."""

from pathlib import Path

from app.domain.spec.inference import Inference
from workers.rank.run_context import RunSpec
from workers.trainers.inference.engine.embedding import chosen_pooling
from workers.trainers.inference.engine.interface import Pooling


def inference_of(spec: RunSpec) -> Inference:
    return Inference.from_json(spec.inference)


def model_directory(spec: RunSpec) -> Path:
    """Where the model's own configuration lies; an adapter has none."""
    is_whole = spec.weights_path and not inference_of(spec).model.adapter
    return Path(spec.weights_path if is_whole else spec.model_path)


def pooling_of(spec: RunSpec) -> Pooling:
    """How vectors are made, by the task and the model's own files. Raises InvalidConfig."""
    return chosen_pooling(inference_of(spec).task, model_directory(spec))
