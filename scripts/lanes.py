"""Chooses the lanes of tests that a change needs, by the table in tests/lanes.toml: `python -m scripts.lanes`."""

import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
TABLE = "tests/lanes.toml"
EVERYTHING = "everything"
# Where a change is to land: the first that there is.
MAIN_BRANCHES = ("origin/HEAD", "origin/main", "origin/master", "main", "master")


class Lane(NamedTuple):
    paths: Sequence[str]
    tests: Sequence[str]


class Table(NamedTuple):
    everything: Sequence[str]
    lanes: Mapping[str, Lane]


@cache
def table() -> Table:
    content = tomllib.loads((ROOT / TABLE).read_text(encoding="utf-8"))
    return Table(content["everything"], {name: Lane(**lane) for name, lane in content["lanes"].items()})


def matches(path: str, patterns: Iterable[str]) -> bool:
    """Whether the last pattern that fits the path takes it in."""
    found = False
    for pattern in patterns:
        if fnmatchcase(path, pattern.removeprefix("!")):
            found = not pattern.startswith("!")
    return found


def has_test(lanes: Iterable[str], path: str) -> bool:
    """Whether one of the lanes holds this file of tests. Raises KeyError for a lane that the table lacks."""
    return any(matches(path, table().lanes[name].tests) for name in lanes)


def lanes_of(changed: Iterable[str] | None) -> tuple[list[str] | None, str]:
    """The lanes for these changed files, None for everything, and why. ``None``: it is not known what changed."""
    if changed is None:
        return None, "what changed against the main branch is not known"
    needed: dict[str, str] = {}
    for path in changed:
        lanes = [] if matches(path, table().everything) else _lanes_of_file(path)
        if not lanes:
            return None, f"{path} changed"
        needed.update({name: path for name in lanes if name not in needed})
    if not needed:
        return None, "nothing has changed"
    return sorted(needed), ", ".join(f"{name} for {path}" for name, path in sorted(needed.items()))


def changed_files(root: Path = ROOT) -> list[str] | None:
    """Paths that differ from where this branch left the main branch, committed or not; None when that is not known."""
    if _git(root, "rev-parse", "--is-shallow-repository") != "false":
        return None
    head = _git(root, "rev-parse", "HEAD")
    main = next((branch for branch in MAIN_BRANCHES if _git(root, "rev-parse", "--verify", "-q", branch)), None)
    base = main and _git(root, "merge-base", main, "HEAD")
    if not base or base == head:
        return None
    differs = _git(root, "diff", "--name-only", "--no-renames", base)
    new = _git(root, "ls-files", "--others", "--exclude-standard")
    return None if differs is None or new is None else [*differs.splitlines(), *new.splitlines()]


def _lanes_of_file(path: str) -> list[str]:
    lanes = table().lanes
    return [name for name, lane in lanes.items() if matches(path, lane.paths) or matches(path, lane.tests)]


def _git(root: Path, *words: str) -> str | None:
    """What git prints; None when it fails, as outside a repository."""
    command = ["git", "-c", "core.quotePath=false", *words]
    try:
        ran = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return ran.stdout.strip()


if __name__ == "__main__":
    names, reason = lanes_of(changed_files())
    print(f"== lanes: {reason}", file=sys.stderr)
    print(",".join(names) if names is not None else EVERYTHING)
