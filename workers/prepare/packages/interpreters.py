"""The versions of Python that jobs may ask this node for."""

import platform
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from workers.attempt_failed import AttemptFailed

_DIRECTORIES = ("/usr/local/bin", "/usr/bin")  # which sandboxes show
_NAME = re.compile(r"python3\.\d{1,2}")
_FIELD = "training_config.packages.python"
_SECONDS = 20


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


def interpreter_for(version: str) -> Interpreter:
    """The node's interpreter of this version, ``3.11`` or ``3.11.7``; its own for none. Raises AttemptFailed."""
    own = own_interpreter()
    found = (own, *others())
    for each in found:
        if version in ("", each.minor, each.version):
            return each
    here = ", ".join(dict.fromkeys(each.version for each in found))
    raise AttemptFailed(
        "PACKAGES_FAILED",
        f"{_FIELD}: this node has no Python {version}, only {here}; say one of them, or leave python out. Nodes "
        "download no interpreters",
    )


@cache
def others() -> tuple[Interpreter, ...]:
    """Those of the machine, which work."""
    paths = [
        path for each in _DIRECTORIES for path in sorted(Path(each).glob("python3.*")) if _NAME.fullmatch(path.name)
    ]
    found = (Interpreter(path=path, version=_version(path)) for path in paths)
    return tuple(each for each in found if each.version)


def _version(path: Path) -> str:
    command = [str(path), "-I", "-S", "-c", "import platform, venv; print(platform.python_version())"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=_SECONDS).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
