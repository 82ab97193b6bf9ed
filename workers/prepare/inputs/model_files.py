"""Tells by a digest whether a model is still the one that an earlier attempt used, without reading all of it."""

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from io import BufferedReader
from itertools import chain, islice
from pathlib import Path

from app.storage.beneath import RefusedFile
from workers.attempt_failed import AttemptFailed
from workers.fetching.digests import Opened, opened_plainly

# Of the start and of the end of a file: weights that were trained further differ there, too, in files of one size.
_SAMPLE_BYTES = 1 << 20
_ENDS = (".safetensors", ".bin", ".pt", ".json", ".model", ".txt", ".jinja", ".py")  # what loading reads


def digest_of(directories: Iterable[Path], opened: Opened = opened_plainly, *, most_files: int | None = None) -> str:
    """Over name, size, start and end of each file, which small files such as config.json are read whole by; "" without
    any, and above ``most_files``; ``opened`` opens them. Raises AttemptFailed when one can't be read.
    """
    most = None if most_files is None else most_files + 1
    try:
        found = [(path, each) for each in directories for path in sorted(islice(_files(each), most))]
        if most_files is not None and len(found) > most_files:
            return ""
        samples = [_sample(path.relative_to(directory), opened(path)) for path, directory in found]
    except (OSError, RefusedFile) as error:
        raise AttemptFailed("MODEL_NOT_FOUND", f"a file of the model can't be read: {error}") from error
    return hashlib.sha256(b"".join(samples)).hexdigest() if samples else ""


def _files(directory: Path) -> Iterator[Path]:
    """Those of the directory and of directories in it, where some models have parts; hidden ones belong to caches."""
    places = chain(directory.glob("[!.]*"), directory.glob("[!.]*/[!.]*"))
    return (path for path in places if path.suffix in _ENDS and path.is_file())


def _sample(name: Path, opened: AbstractContextManager[BufferedReader]) -> bytes:
    with opened as file:
        size = os.fstat(file.fileno()).st_size
        sample = hashlib.sha256(f"{name.as_posix()}/{size}/".encode())
        sample.update(file.read(_SAMPLE_BYTES))
        file.seek(max(file.tell(), size - _SAMPLE_BYTES))
        sample.update(file.read(_SAMPLE_BYTES))  # not more where a job lets the file grow
    return sample.digest()
