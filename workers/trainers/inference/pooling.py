"""How the vectors of a job are made."""

from workers.rank.run_context import RunSpec
from workers.trainers.inference.engine.embedding import chosen_pooling
from workers.trainers.inference.engine.interface import Pooling
from workers.trainers.inference.section import inference_of, model_directory


def pooling_of(spec: RunSpec) -> Pooling:
    """By the task and the model's own files. Raises InvalidConfig."""
    return chosen_pooling(inference_of(spec).task, model_directory(spec))
