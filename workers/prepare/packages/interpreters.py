"""The versions of Python that jobs may ask this node for."""

import os
import platform
import re
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from workers.attempt_failed import AttemptFailed

_DIRECTORIES = (Path("/usr/local/bin"), Path("/usr/bin"))  # which sandboxes show
# Below a directory of the operator's programs, which sandboxes show, too: its own, those of an installation in it, and
# those in a directory of several, as uv and conda lay them out.
_PROGRAMS = ("bin", "*/bin", "*/*/bin")
_SYSTEM = (Path("/usr"), Path("/lib"), Path("/lib64"))  # in all sandboxes
_ASKED = "import platform, venv; print(platform.python_version()); print(open('/proc/self/maps').read())"
_NAME = re.compile(r"python3\.\d{1,2}")
_FIELD = "training_config.packages.python"
_SECONDS = 20
_OF_OTHERS = stat.S_IWGRP | stat.S_IWOTH  # who may write; in a sticky directory they exchange no files but their own
_MOST_LINKS = 40  # as Linux follows


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
    shown = [each.resolve() for each in (*software, *_SYSTEM, Path(sys.prefix), Path(sys.base_prefix))]
    closed = [*_pythons(_DIRECTORIES), *filter(_is_closed, _pythons(places))]
    paths = [path for path in closed if _is_shown(path, shown)]
    found = (Interpreter(path=path, version=_version(path, shown)) for path in paths)
    return tuple(each for each in found if each.version)


def _pythons(places: Iterable[Path]) -> Iterator[Path]:
    for place in places:
        yield from (path for path in sorted(place.glob("python3.*")) if _NAME.fullmatch(path.name))


def _is_closed(path: Path) -> bool:
    """Whether no other user can exchange it: the worker, which may be root, is about to run it.

    Links are followed by hand, since their owners may change where they lead, also in sticky directories.
    """
    here, ahead, links = Path("/"), [*path.absolute().parts[1:]], 0
    try:
        while True:
            found = here.lstat()
            if found.st_uid not in (0, os.geteuid()):
                return False
            if stat.S_ISLNK(found.st_mode):
                links += 1
                if links > _MOST_LINKS:
                    return False
                target = here.readlink()
                here = Path("/") if target.is_absolute() else here.parent
                ahead = [*target.parts[target.is_absolute() :], *ahead]
            elif found.st_mode & _OF_OTHERS and not (stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX):
                return False
            if not ahead:
                return True
            name = ahead.pop(0)
            here = here.parent if name == ".." else here / name
    except OSError:
        return False


def _is_shown(path: Path, roots: Sequence[Path]) -> bool:
    """Whether sandboxes have the program, and that of a virtual environment's base, which may be elsewhere."""
    try:
        needed = [path.resolve(strict=True), *_bases(path)]
    except (OSError, RuntimeError, ValueError):  # links in a circle, and what is no path
        return False
    return _are_below(needed, roots)


def _are_below(paths: Iterable[Path], roots: Sequence[Path]) -> bool:
    return all(any(each.is_relative_to(root) for root in roots) for each in paths)


def _bases(path: Path) -> Iterator[Path]:
    """The directory that ``home`` of a virtual environment names, if it is one."""
    config = path.parent.parent / "pyvenv.cfg"
    for line in config.read_text(errors="replace").splitlines() if config.is_file() else ():
        name, _, value = line.partition("=")
        if name.strip().lower() == "home":
            yield Path(value.strip()).resolve()


def _version(path: Path, roots: Sequence[Path]) -> str:
    """Empty for one that does not work, or not in a sandbox, since its libraries are elsewhere."""
    command = [str(path), "-I", "-S", "-c", _ASKED]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_SECONDS)
    except (OSError, ValueError, subprocess.SubprocessError):
        return ""
    version, *maps = ran.stdout.splitlines() or [""]
    mapped = (Path(found[5]) for line in maps if len(found := line.split(maxsplit=5)) > 5 and found[5].startswith("/"))
    return version.strip() if _are_below(mapped, roots) else ""
