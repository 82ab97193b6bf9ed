"""What identifies a model with its engine: the same fingerprint and seed give the same answer."""

import hashlib
import json
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from workers.rank.run_context import RunSpec

_LIBRARIES = ("torch", "transformers")
_END_BYTES = 1 << 20


class Fingerprints:
    """Of one loaded model, alone and with adapters."""

    def __init__(self, spec: RunSpec, dtype: str) -> None:
        whole = hashlib.sha256()
        libraries = {name: version(name) for name in _LIBRARIES}
        described = [spec.device_type, dtype, libraries, spec.weights_sha256]
        whole.update(json.dumps(described, sort_keys=True).encode())
        for path in filter(None, (spec.model_path, spec.weights_path, spec.tokenizer_path)):
            for part in _ends(Path(path)):
                whole.update(part)
        self._digest = whole.hexdigest()

    def of(self, adapter: str | None) -> str:
        """``adapter`` None: of the model itself."""
        return f"fp_{hashlib.sha256(f'{self._digest} {adapter or chr(0)}'.encode()).hexdigest()[:16]}"


def _ends(directory: Path) -> Iterator[bytes]:
    """Names, sizes, and both ends of the files: reading all of a large model would double the time of a cold start."""
    for path in sorted(each for each in directory.glob("*") if each.is_file()):
        size = path.stat().st_size
        yield f"{path.name} {size}".encode()
        with path.open("rb") as file:
            yield file.read(_END_BYTES)
            file.seek(max(0, size - _END_BYTES))
            yield file.read(_END_BYTES)
