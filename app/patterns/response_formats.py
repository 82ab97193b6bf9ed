"""The regular expression of `response_format`, compiled at submission instead of by the job."""

from app.domain.errors import BadSpec
from app.domain.spec.hyperparameters.parameter import InvalidHyperparameter
from app.domain.spec.hyperparameters.rlhf import REGEX as REWARD_REGEX
from app.domain.spec.hyperparameters.rlhf import REWARD
from app.domain.spec.model import JobDocument
from app.domain.spec.response_formats import REGEX
from app.patterns.rewards import compiled


def refuse_bad_response_format(document: JobDocument) -> None:
    """Check the pattern of an otherwise valid document. Raises BadSpec."""
    form = document.inference.task.response_format if document.inference is not None else {}
    if form.get("type") != REGEX:
        return
    try:
        compiled(str(form["pattern"]))
    except InvalidHyperparameter as error:
        message = error.message.removeprefix(f"{REWARD} {REWARD_REGEX}:")
        raise BadSpec(message, field="inference.task.response_format.pattern") from error
