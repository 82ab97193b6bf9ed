"""Lines of a lock: one version of one package each, its marker and its hashes, and nothing else."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from app.domain.errors import BadSpec
from app.domain.spec.rules.requirement_lines import logical_lines

FIELD = "training_config.packages.lock"
MOST_LOCKED = 2000
_OPTION = " --hash="
_PINNED = re.compile(
    r"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?) ?(?P<extras>\[[A-Za-z0-9._, -]*\])? ?"
    r"== ?(?P<version>[A-Za-z0-9][A-Za-z0-9.!+_-]*)(?: ?; ?(?P<marker>[^\x00-\x1f\x7f\\#;]+))?"
)
_HASH = re.compile(r"sha(?:256|384|512):[0-9a-f]{64,128}")


@dataclass(frozen=True, kw_only=True)
class LockedPackage:
    """What one line says."""

    name: str
    requirement: str  # NAME[EXTRAS]==VERSION ; MARKER
    hashes: tuple[str, ...]


def locked_packages(lock: str) -> Iterator[LockedPackage]:
    """Raises BadSpec for the first line that a lock can't have."""
    count = 0
    for line in logical_lines(lock):
        head, *hashes = " ".join(line.split()).split(_OPTION)
        found = _PINNED.fullmatch(head)
        if line.startswith("-"):
            why = "options are not read; name the index in index_url, and every package in the lock itself"
        elif found is None:
            why = "each line of a lock is NAME==VERSION with its hashes, as uv pip compile --generate-hashes writes it"
        elif not hashes:
            why = "it has no hash; make the lock with uv pip compile --generate-hashes"
        elif not all(map(_HASH.fullmatch, hashes)):
            why = "after NAME==VERSION it has nothing but --hash=sha256:DIGITS, once or more"
        else:
            count += 1
            marker = f" ; {found['marker']}" if found["marker"] else ""
            pinned = f"{found['name']}{found['extras'] or ''}=={found['version']}"
            yield LockedPackage(name=found["name"], requirement=pinned + marker, hashes=tuple(hashes))
            continue
        raise BadSpec(f"{line!r:.120}: {why}", field=FIELD)
    if not 0 < count <= MOST_LOCKED:
        raise BadSpec(f"it has {count} packages; a lock has 1 to {MOST_LOCKED}", field=FIELD)
