"""Whether what failed in a run of the tests gets a second go, by the list in tests/unsteady.toml."""

import json
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
LIST = "tests/unsteady.toml"
# How many tests the list may hold, and how many may fail in one run.
ROOM = 5
FEW = 3
_LAST_FAILED = ".pytest_cache/v/cache/lastfailed"


def known(root: Path = ROOT) -> Mapping[str, str]:
    """The ids of the tests on the list, without parameters, and why each is there."""
    tests: Mapping[str, str] = tomllib.loads((root / LIST).read_text(encoding="utf-8"))["tests"]
    return tests


def last_failed(root: Path = ROOT) -> list[str]:
    """The ids of what failed in the latest run; none of a run that ended before it had any result."""
    try:
        return sorted(json.loads((root / _LAST_FAILED).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return []


def judge(failed: Iterable[str], unsteady: Mapping[str, str]) -> tuple[bool, list[str]]:
    """Whether these get a second go, and a line about each."""
    names = sorted(failed)
    new = {_without_parameters(name) for name in names} - set(unsteady)
    if not 0 < len(names) <= FEW:
        return False, [f"{len(names)} tests failed: no second go, which 1 to {FEW} would have"]
    if len(unsteady) + len(new) > ROOM:
        return False, [f"no second go: {LIST} has no room for {name}" for name in sorted(new)]
    return True, [_said_of(name, unsteady) for name in names]


def _said_of(name: str, unsteady: Mapping[str, str]) -> str:
    why = unsteady.get(_without_parameters(name))
    return f"{name}: known ({why})" if why else f"{name}: new; if it passes now, mend it or write it down in {LIST}"


def _without_parameters(name: str) -> str:
    return name.partition("[")[0]


if __name__ == "__main__":
    goes_on, lines = judge(last_failed(), known())
    print(*lines, sep="\n")
    sys.exit(0 if goes_on else 1)
