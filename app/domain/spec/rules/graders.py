"""Rules of ``training_config.grader``, which takes the place of the hyperparameter `reward`."""

from app.domain.errors import BadSpec
from app.domain.graders.document import parse
from app.domain.spec.document import is_custom, trainer, typed_hyperparameters
from app.domain.spec.hyperparameters.rlhf import ALGORITHM, POLICIES, REWARD, REWARD_MODEL, completes
from app.domain.spec.model import JobDocument

FIELD = "training_config.grader"


def grader_can_judge(document: JobDocument) -> None:
    grader, (_, training_type) = document.training_config.grader, trainer(document)
    if not grader:
        return
    if is_custom(document) or training_type != "RLHF" or not completes(typed_hyperparameters(document)):
        raise BadSpec(
            f"judges completions, which RLHF with {ALGORITHM} {', '.join(POLICIES)} makes; leave it out of other "
            "trainings",
            field=FIELD,
        )
    given = document.training_config.hyperparameters
    if both := next((name for name in (REWARD, REWARD_MODEL) if given.get(name)), None):
        raise BadSpec(f"judges in place of the hyperparameter {both}; leave one of them out", field=FIELD)
    parse(grader, FIELD)


RULES = (grader_can_judge,)
