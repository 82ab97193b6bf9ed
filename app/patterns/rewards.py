"""The regular expression of RLHF's hyperparameter `reward`."""

import re2

from app.domain.errors import BadSpec
from app.domain.spec.document import is_custom, typed_hyperparameters
from app.domain.spec.hyperparameters import parsing
from app.domain.spec.hyperparameters.rlhf import REGEX, REWARD, reward_kind
from app.domain.spec.model import JobDocument

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False


def compiled(text: str) -> "re2._Regexp":
    """Compile in RE2 syntax, whose searches take linear time. Raises InvalidHyperparameter."""
    try:
        return re2.compile(text, _OPTIONS)
    except re2.error as error:
        problem = error.args[0].decode(errors="replace")
        raise parsing.InvalidHyperparameter(
            REWARD,
            f"{REWARD} {REGEX}:{text[:64]}: {problem}; use a regular expression in RE2's syntax, without lookarounds "
            "and backreferences",
        ) from error


def refuse_bad_pattern(document: JobDocument) -> None:
    """Check the pattern of an otherwise valid document. Raises BadSpec."""
    if is_custom(document):
        return
    kind, text = reward_kind(str(typed_hyperparameters(document).get(REWARD, "")))
    if kind != REGEX:
        return
    try:
        compiled(text)
    except parsing.InvalidHyperparameter as error:
        raise BadSpec(error.message, field=f"training_config.hyperparameters.{REWARD}") from error
