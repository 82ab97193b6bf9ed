"""Metric patterns in ``training_config.framework.config``, for scripts that don't use the platform's hooks."""

from collections.abc import Mapping

import re2

PREFIX = "metric."
# Matches of these names report progress instead of metrics.
STEP, TOTAL_STEPS, EPOCH = "step", "total_steps", "epoch"
MAX_PATTERNS = 64
MAX_PATTERN = 500
_OPTIONS = re2.Options()
_OPTIONS.log_errors = False


class InvalidPattern(ValueError):
    """An invalid pattern; ``name`` is the name of its option."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


def metric_patterns(config: Mapping[str, str]) -> dict[str, "re2._Regexp"]:
    """Metric → pattern of its log line, with the number as its only group; {} when there are none.

    The syntax is RE2's: searches take linear time, so no script can stall its supervisor. Raises InvalidPattern.
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
        problem = error.args[0].decode(errors="replace")
        raise InvalidPattern(
            name, f"{problem}: use a regular expression in RE2's syntax, without lookarounds and backreferences"
        ) from error
    if pattern.groups != 1:
        raise InvalidPattern(
            name,
            f"the pattern has {pattern.groups} groups and needs one, which matches the number, as in "
            r"loss=([-+.\deE]+); say (?:…) for groups that only hold together",
        )
    return pattern
