"""What a job's package environment is made of, and the key under which a node keeps it."""

import hashlib
import json
import platform
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path

from app.domain.spec.packages import Packages
from app.domain.spec.rules.packages import names_of
from workers.prepare.packages.interpreters import Interpreter

# Packages that belong to one version of torch. Where the node has them and the job names none, they are not installed
# again: the node's own are imported.
TORCH_FAMILY = ("torch", "torchvision", "torchaudio")
_OURS = Path(__file__).parents[3]
_FORMAT = 2  # of an environment; another one makes older ones unused


@dataclass(frozen=True, kw_only=True)
class EnvironmentRequest:
    """``login`` opens the index; ``project`` is empty for an environment that all projects may share."""

    packages: Packages
    interpreter: Interpreter
    index_url: str  # empty: uv's default
    project: str
    uv: str  # its version
    login: tuple[str, str] = field(default=("", ""), repr=False)

    @property
    def key(self) -> str:
        """Hex digits; equal for equal environments."""
        packages = self.packages
        made_of = {
            "format": _FORMAT,
            "requirements": [] if packages.lock else sorted(packages.requirements),
            "lock": packages.lock,
            "source": packages.allow_source_builds,
            "python": [str(self.interpreter.path), self.interpreter.version],
            "index": self.index_url,
            "platform": [sysconfig.get_platform(), platform.libc_ver()],
            "hooks": str(_OURS),  # where the environment has a link to
            "node": [str(path) for path in node_paths(self.interpreter)],
            "torch": torch_versions(),
            "uv": self.uv,
            "project": self.project,
        }
        return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()

    @property
    def node_torch(self) -> dict[str, str]:
        """Versions of the node's packages of TORCH_FAMILY that the environment takes over."""
        versions = torch_versions() if self.interpreter.is_own else {}
        named = names_of(self.packages)
        return {} if named & set(TORCH_FAMILY) else versions


def node_paths(interpreter: Interpreter) -> list[Path]:
    """Directories of the node's packages that this interpreter can import; modules are looked for there last."""
    if not interpreter.is_own:
        return []
    return list(dict.fromkeys(Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")))


def torch_versions() -> dict[str, str]:
    """Of this node's interpreter."""
    from importlib import metadata  # noqa: PLC0415 – slow to import, and most jobs have no packages

    found = {}
    for name in TORCH_FAMILY:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def scope_of(packages: Packages, project: str, *, is_confined: bool, has_login: bool) -> str:
    """The project that an environment belongs to; empty where its content is what the hashes of a lock say.

    Without hashes the index decides what is installed, and code of a build could put anything into it.
    """
    is_determined = bool(packages.lock) and not packages.allow_source_builds
    return "" if is_determined and is_confined and not has_login else project
