"""Rules of jobs that ask a service: what only a model of their own could do is refused."""

from app.domain.errors import BadSpec
from app.domain.spec.inference import BATCH, EMBED, FEATURES, GENERATE
from app.domain.spec.model import JobDocument

_OF_LOADED_MODELS = ("pooling", "layer", "normalize")  # fields of a task that say how a model is read


def service_can_answer(document: JobDocument) -> None:
    """An evaluation's benchmarks are checked where they are known."""
    inference = document.inference
    if inference is None or inference.model.service is None or document.kind not in (BATCH, FEATURES):
        return
    task, name = inference.task, inference.model.service
    if task.type not in (GENERATE, EMBED):
        raise BadSpec(
            f"the service {name} is asked for texts or vectors, and task type {task.type} needs the model itself; name "
            "that by job_id or model_uri",
            field="inference.task.type",
        )
    if task.response_format:
        raise BadSpec(
            f"the service {name} is asked for completions, which have no response_format; leave it out, or name the "
            "model itself by job_id or model_uri",
            field="inference.task.response_format",
        )
    if given := next((each for each in _OF_LOADED_MODELS if each in task.given), None):
        raise BadSpec(
            f"the service {name} makes vectors in its own way; leave {given} out, or name the model itself by job_id "
            "or model_uri",
            field=f"inference.task.{given}",
        )
