"""The versions of Python that jobs may ask this node for."""

import os
import platform
import re
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from workers.attempt_failed import AttemptFailed

_DIRECTORIES = (Path("/usr/local/bin"), Path("/usr/bin"))  # which sandboxes show
# Below a directory of the operator's programs, which sandboxes show, too: its own, those of an installation in it, and
# those in a directory of several, as uv and conda lay them out.
_PROGRAMS = ("bin", "*/bin", "*/*/bin")
_NAME = re.compile(r"python3\.\d{1,2}")
_FIELD = "training_config.packages.python"
_SECONDS = 20
_OF_OTHERS = stat.S_IWGRP | stat.S_IWOTH  # who may write; in a sticky directory they exchange no files but their own


@dataclass(frozen=True, kw_only=True)
class Interpreter:
    """``is_own``: with the ABI of the one that the platform runs with, whose packages it can import."""

    path: Path
    version: str

    @property
    def minor(self) -> str:
        return ".".join(self.version.split(".")[:2])

    @property
    def is_own(self) -> bool:
        return self.minor == ".".join(map(str, sys.version_info[:2]))


def own_interpreter() -> Interpreter:
    return Interpreter(path=Path(sys.executable), version=platform.python_version())


def interpreter_for(version: str, software: tuple[Path, ...]) -> Interpreter:
    """The node's interpreter of this version, ``3.11`` or ``3.11.7``; its own for none. Raises AttemptFailed.

    ``software`` are the directories of programs that the operator names.
    """
    own = own_interpreter()
    if version in ("", own.minor, own.version):
        return own
    found = (own, *others(software))
    for each in found:
        if version in (each.minor, each.version):
            return each
    here = ", ".join(dict.fromkeys(each.version for each in found))
    raise AttemptFailed(
        "PACKAGES_FAILED",
        f"{_FIELD}: this node has no Python {version}, only {here}; say one of them, or leave python out. Nodes "
        "download no interpreters: the operator installs them, in /usr/local/bin or below a directory of "
        "TRAINYARD_NODE_SOFTWARE",
    )


@cache
def others(software: tuple[Path, ...]) -> tuple[Interpreter, ...]:
    """Those of the machine and of the operator, which work: of equal versions the first is taken."""
    places = [place for each in software for below in _PROGRAMS for place in sorted(each.glob(below))]
    paths = [*_pythons(_DIRECTORIES), *filter(_is_closed, _pythons(places))]
    found = (Interpreter(path=path, version=_version(path)) for path in paths)
    return tuple(each for each in found if each.version)


def _pythons(places: Iterable[Path]) -> Iterator[Path]:
    for place in places:
        yield from (path for path in sorted(place.glob("python3.*")) if _NAME.fullmatch(path.name))


def _is_closed(path: Path) -> bool:
    """Whether no other user can exchange it: the worker, which may be root, is about to run it."""
    try:
        resolved = path.resolve(strict=True)
        found = [each.stat() for each in {*path.parents, resolved, *resolved.parents}]
    except OSError:
        return False
    return all(
        each.st_uid in (0, os.geteuid()) and (not each.st_mode & _OF_OTHERS or bool(each.st_mode & stat.S_ISVTX))
        for each in found
    )


def _version(path: Path) -> str:
    command = [str(path), "-I", "-S", "-c", "import platform, venv; print(platform.python_version())"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=_SECONDS).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
