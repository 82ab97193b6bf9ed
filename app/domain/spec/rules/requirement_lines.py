"""Lines of requirements: what is wrong with one, and what a requirements file in the code of a job asks for."""

import re
from collections.abc import Callable, Iterator

from app.domain.errors import BadSpec
from app.domain.spec.packages import Packages
from app.domain.spec.quoting import quoted

FILE_FIELD = "training_config.packages.requirements_file"
MOST_REQUIREMENTS = 200
LONGEST_REQUIREMENT = 1024
LONGEST_LOCK = 512 << 10
# Also what only some programs take for the end of a line.
CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f\x85\u2028\u2029]")
_COMMENT = re.compile(r"(?:^|\s)#.*$")
_HASH_OPTION = "--hash="


def malformed(text: str) -> str:
    """What to say of a text that is no requirement as PEP 508 describes it, with the form to use."""
    return f"{text!r:.200} is no requirement, such as numpy==2.1.0{_why(text)}"


def logical_lines(text: str) -> Iterator[str]:
    """Lines without comments, continued ones joined; no empty ones. A comment ends at the end of its own line."""
    joined = ""
    for line in (*text.splitlines(), ""):
        found = _COMMENT.sub("", line)
        if found.endswith("\\"):
            joined += found[:-1] + " "
            continue
        if whole := (joined + found).strip():
            yield whole
        joined = ""


def with_lines_of(packages: Packages, text: str, is_requirement: Callable[[str], bool]) -> Packages:
    """The packages with those of their requirements file, which has this text; one with hashes is a lock.

    ``is_requirement``: as PEP 508 describes it. Raises BadSpec for what a requirements file can't have; the other rules
    of packages are not checked here.
    """
    name, lines = quoted(packages.requirements_file), list(logical_lines(text))
    if any(_HASH_OPTION in line for line in lines):
        if packages.lock:
            raise BadSpec(f"{name} has hashes, and there is a lock; keep one of them", field=FILE_FIELD)
        return packages.changed(lock=text, requirements_file="")
    if len(lines) + len(packages.requirements) > MOST_REQUIREMENTS:
        raise BadSpec(
            f"{name} has {len(lines)} requirements; a job has at most {MOST_REQUIREMENTS}. Make a lock of them (uv pip "
            "compile --generate-hashes), which may have more",
            field=FILE_FIELD,
        )
    for line in lines:
        if len(line) > LONGEST_REQUIREMENT or not is_requirement(line):
            raise BadSpec(f"{name}: {malformed(line)}", field=FILE_FIELD)
    return packages.changed(requirements=(*packages.requirements, *lines), requirements_file="")


def _why(text: str) -> str:
    if text.lstrip().startswith("-"):
        return ": options such as -r and -e are not read; name each package"
    if text.startswith((".", "/", "~", "file:")):
        return ": files of this machine are no packages; put code into framework.custom_code_dir"
    if "://" in text:
        return ": write NAME @ https://HOST/NAME-VERSION.whl, or NAME @ git+https://HOST/PATH@COMMIT"
    return ""
