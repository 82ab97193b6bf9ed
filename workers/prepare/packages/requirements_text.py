"""The text that uv reads, made from parsed requirements: the user's own could have options of uv's in it."""

import re
from collections.abc import Iterator

from packaging.requirements import InvalidRequirement, Requirement

from app.domain.errors import BadSpec
from app.domain.spec.packages import Packages
from app.domain.spec.rules.lock_lines import locked_packages
from app.domain.spec.rules.requirement_lines import CONTROL, malformed
from workers.attempt_failed import AttemptFailed
from workers.prepare.packages.failures import FIELD

# Of a requirement, uv takes these for a comment, an option, a variable or a continued line.
_UNSAFE = re.compile(r"\s[#-]|\\|\$\{")


def requirements_text(packages: Packages) -> str:
    """A requirements file, which is a lock if there is one. Raises AttemptFailed."""
    return "".join(f"{line}\n" for line in (_locked(packages.lock) if packages.lock else _required(packages)))


def _required(packages: Packages) -> Iterator[str]:
    return (_canonical(text, f"{FIELD}.requirements") for text in packages.requirements)


def _locked(lock: str) -> Iterator[str]:
    field = f"{FIELD}.lock"
    try:
        for each in locked_packages(lock):
            yield " ".join((_canonical(each.requirement, field), *(f"--hash={digest}" for digest in each.hashes)))
    except BadSpec as error:
        raise AttemptFailed("INVALID_CONFIG", f"{field}: {error.message}") from error


def _canonical(text: str, field: str) -> str:
    try:
        line = str(Requirement(text))
    except (InvalidRequirement, RecursionError) as error:
        raise AttemptFailed("INVALID_CONFIG", f"{field}: {malformed(text)}") from error
    if CONTROL.search(line) or _UNSAFE.search(line):
        raise AttemptFailed(
            "INVALID_CONFIG",
            f"{field}: {text!r:.200} has a character that would change its meaning in a requirements file; leave line "
            "breaks, \\, ${ and # or - after a space out",
        )
    return line
