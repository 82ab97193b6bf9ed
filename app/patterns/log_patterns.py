"""Patterns that people search logs with. Their syntax is RE2's: a search takes linear time, whatever the pattern."""

import re2

MAX_PATTERN = 500
_OPTIONS = re2.Options()
_OPTIONS.log_errors = False


class InvalidPattern(ValueError):
    """An invalid pattern; the message says what is wrong with it."""


def log_pattern(text: str) -> "re2._Regexp":
    """The pattern, for lines in UTF-8. Raises InvalidPattern."""
    if len(text) > MAX_PATTERN:
        raise InvalidPattern(f"a pattern has at most {MAX_PATTERN} characters, this one has {len(text)}")
    try:
        return re2.compile(text.encode("utf-8", "replace"), _OPTIONS)
    except re2.error as error:
        problem = error.args[0].decode(errors="replace")
        raise InvalidPattern(
            f"{problem}: use a regular expression in RE2's syntax, without lookarounds and backreferences"
        ) from error
