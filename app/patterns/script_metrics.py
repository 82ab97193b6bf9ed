"""What ``training_config.framework.config`` says of a script that knows nothing of the platform: its own metrics."""

from collections.abc import Mapping

import re2

PREFIX = "metric."
# Of these a match is no metric, but where the training is.
STEP, TOTAL_STEPS, EPOCH = "step", "total_steps", "epoch"
MAX_PATTERNS = 64
MAX_PATTERN = 500
_OPTIONS = re2.Options()
_OPTIONS.log_errors = False


class InvalidPattern(ValueError):
    """A pattern that can't be looked for; ``name`` is that of its option."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


def metric_patterns(config: Mapping[str, str]) -> dict[str, "re2._Regexp"]:
    """Metric → the pattern of a line that tells it, with the number as its group; {} when there are none.

    The syntax is RE2's: whatever the pattern and the line, a search takes time in proportion to their lengths, so no
    script can hold up its supervisor by it. Raises InvalidPattern.
    """
    named = {name: text for name, text in config.items() if name.startswith(PREFIX)}
    if len(named) > MAX_PATTERNS:
        first = min(named)
        raise InvalidPattern(first, f"there are {len(named)} patterns for metrics, and at most {MAX_PATTERNS} may be")
    return {name.removeprefix(PREFIX): _compiled(name, text) for name, text in named.items()}


def _compiled(name: str, text: str) -> "re2._Regexp":
    if name == PREFIX:
        raise InvalidPattern(name, f"name the metric after {PREFIX}, as in {PREFIX}loss")
    if len(text) > MAX_PATTERN:
        raise InvalidPattern(name, f"a pattern has at most {MAX_PATTERN} characters, this one has {len(text)}")
    try:
        pattern = re2.compile(text, _OPTIONS)
    except re2.error as error:
        said = error.args[0].decode(errors="replace")
        raise InvalidPattern(
            name, f"{said}: say a regular expression in RE2's syntax, without lookarounds and backreferences"
        ) from error
    if pattern.groups != 1:
        raise InvalidPattern(
            name,
            f"the pattern has {pattern.groups} groups and needs one, which matches the number, as in "
            r"loss=([-+.\deE]+); say (?:…) for groups that only hold together",
        )
    return pattern
