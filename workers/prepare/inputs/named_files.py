"""Finds files named in a script's command line, so that they can be mounted for its ranks if the project may read
them.
"""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from app.domain.spec.model import Framework
from workers.prepare.inputs.input_library import Library
from workers.prepare.inputs.resolve_inputs import MOST_MOUNTS, may_read

# An absolute path, alone or within a word: --config=/srv/a.yaml, or in the text of sh -c. Not the path of a URL.
_PATH = re.compile(r"(?<![\w.:/~])/(?!/)[^\s\"'`=,;:|&<>(){}$*?\[\]]+")


def named_files(library: Library, framework: Framework) -> tuple[Path, ...]:
    """The paths to mount: the file or directory; for a Python script its directory, from which it may import."""
    words = [*framework.custom_command, *framework.custom_arguments]
    found: dict[Path, None] = {}
    for path in _paths(words):
        real = library.rules.real_path(path)
        if real in _roots(library) or not may_read(library, real) or not os.path.exists(real):  # noqa: PTH110 – never raises
            continue
        found[_with_imports(library, Path(path))] = None
        if len(found) == MOST_MOUNTS:
            break
    return tuple(found)


def _paths(words: Sequence[str]) -> Iterator[str]:
    yield from (found for word in words for found in _PATH.findall(word) if "\0" not in found)


def _with_imports(library: Library, path: Path) -> Path:
    """Never mounts a whole root for one file in it."""
    real = library.rules.real_path(str(path.parent))
    is_script = path.suffix == ".py" and real not in _roots(library) and may_read(library, real)
    return path.parent if is_script else path


def _roots(library: Library) -> set[str]:
    return {library.rules.real_path(root) for root in library.rules.roots}
