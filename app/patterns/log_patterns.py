"""Patterns that people search logs with.

Their syntax is RE2's: a search takes the product of the line's length and the pattern's size once it is compiled, which
counted repetitions make large. So that size is limited: at worst, 16 KiB of a line take some tenths of a second.
"""

import re2

MAX_PATTERN = 500
_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.max_mem = 1 << 18  # bytes of a compiled pattern; RE2's own limit is 8 MiB


class InvalidLogPattern(ValueError):
    """An invalid pattern; the message says what is wrong with it."""


def log_pattern(text: str) -> "re2._Regexp":
    """The pattern, for lines in UTF-8. Raises InvalidLogPattern."""
    if len(text) > MAX_PATTERN:
        raise InvalidLogPattern(f"a pattern has at most {MAX_PATTERN} characters, this one has {len(text)}")
    try:
        return re2.compile(text.encode("utf-8", "replace"), _OPTIONS)
    except re2.error as error:
        problem = error.args[0].decode(errors="replace")
        if "too large" in problem:
            raise InvalidLogPattern("the pattern is too large: use fewer or smaller counted repetitions") from error
        what, _, where = problem.partition(": ")
        raise InvalidLogPattern(
            f"{what} in '{where}'; use a regular expression in RE2's syntax, without lookarounds and backreferences"
        ) from error
