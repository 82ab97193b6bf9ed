"""Tells by a digest whether a model is still the one that an earlier attempt used, without reading all of it."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from workers.attempt_failed import AttemptFailed

# Of the start and of the end of a file: weights that were trained further differ there, too, in files of one size.
_SAMPLE_BYTES = 1 << 20
_ENDS = (".safetensors", ".bin", ".pt", ".json", ".model", ".txt", ".jinja", ".py")  # what loading reads


def digest_of(directories: Iterable[Path]) -> str:
    """Over name, size, start and end of each file, which small files such as config.json are read whole by; "" without
    any. Raises AttemptFailed when one can't be read.
    """
    found = [(path, directory) for directory in directories for path in _files(directory)]
    try:
        samples = [_sample(path, path.relative_to(directory)) for path, directory in found]
    except OSError as error:
        raise AttemptFailed("MODEL_NOT_FOUND", f"a file of the model can't be read: {error}") from error
    return hashlib.sha256(b"".join(samples)).hexdigest() if samples else ""


def _files(directory: Path) -> list[Path]:
    """Those of the directory and of directories in it, where some models have parts; hidden ones belong to caches."""
    places = (*directory.glob("[!.]*"), *directory.glob("[!.]*/[!.]*"))
    return sorted(path for path in places if path.suffix in _ENDS and path.is_file())


def _sample(path: Path, name: Path) -> bytes:
    size = path.stat().st_size
    sample = hashlib.sha256(f"{name.as_posix()}/{size}/".encode())
    with path.open("rb") as file:
        sample.update(file.read(_SAMPLE_BYTES))
        file.seek(max(file.tell(), size - _SAMPLE_BYTES))
        sample.update(file.read())
    return sample.digest()
