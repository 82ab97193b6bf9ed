"""The node's interpreter and our code beside the files of an image, for the agent: the image may have no Python at all.

Everything lies below one directory. The interpreter is started by the dynamic linker that it was started with here, so
that it finds the node's libraries, and nothing of the image.
"""

import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from workers.sandbox.placements import MountKind, SandboxMount

PLACE = Path("/.trainyard")
NODE = PLACE / "node"  # paths of this machine, below it
CODE = PLACE / "code"  # packages of ours that the agent imports
HOOKS = PLACE / "python"  # the package that scripts import
_OURS = Path(__file__).parents[2]
_PACKAGES = ("app", "config", "trainyard", "workers")
_PROGRAMS = ("/usr", "/lib", "/lib64")


class NoDynamicLinker(RuntimeError):
    """This interpreter was not started by a dynamic linker that /proc shows."""


def python_mounts() -> Iterator[SandboxMount]:
    """What the interpreter reads, read-only."""
    prefixes = [Path(sys.base_prefix).resolve(), Path(sys.base_exec_prefix).resolve()]
    programs = [path.resolve() for path in map(Path, _PROGRAMS) if path.is_dir() and not path.is_symlink()]
    roots: list[Path] = []
    for path in sorted({*programs, *prefixes, *_libraries()}, key=lambda each: len(each.parts)):
        if not any(path.is_relative_to(root) for root in roots):
            roots.append(path)
    yield from (SandboxMount(MountKind.READ_ONLY, _inside(root), root) for root in roots)
    yield from (SandboxMount(MountKind.READ_ONLY, CODE / name, (_OURS / name).resolve()) for name in _PACKAGES)
    yield SandboxMount(MountKind.READ_ONLY, HOOKS / "trainyard", (_OURS / "trainyard").resolve())


def python_command() -> list[str]:
    """The interpreter's command line in the sandbox, to which its arguments are added. Raises NoDynamicLinker."""
    libraries = ":".join(str(_inside(path)) for path in _libraries())
    program = str(_inside(Path(sys.executable).resolve()))
    linker = [str(_inside(_linker())), "--inhibit-cache", "--library-path", libraries, "--argv0", program, program]
    return [*linker, "-S"]  # without site-packages: the agent needs none


@cache
def _mapped() -> tuple[Path, ...]:
    """Shared objects in the memory of this process."""
    words = (line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines())
    paths = {Path(word[5]) for word in words if len(word) == 6 and word[5].startswith("/")}
    return tuple(sorted(path for path in paths if ".so" in path.name))


def _linker() -> Path:
    for path in _mapped():
        if path.name.startswith("ld-"):
            return path
    raise NoDynamicLinker("no dynamic linker is in the memory map of this interpreter")


def _libraries() -> list[Path]:
    """Directories of the libraries of the interpreter itself; its extension modules lie below its prefix."""
    names = ("libc.", "libm.", "libpython", "libssl", "libcrypto", "libz.", "libffi", "libdl.", "libpthread.", "ld-")
    return list(dict.fromkeys(path.parent for path in _mapped() if path.name.startswith(names)))


def _inside(path: Path) -> Path:
    return NODE / path.relative_to("/")
