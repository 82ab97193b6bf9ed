"""Fingerprints: what changes them, and what does not."""

from pathlib import Path

from tests.builders.engine_specs import engine_spec
from workers.trainers.inference.serving.openai.fingerprint import Fingerprints


def fingerprint(model: Path, dtype: str = "float32", adapter: str | None = None) -> str:
    return Fingerprints(engine_spec(model), dtype).of(adapter)


def write(directory: Path, weights: bytes) -> Path:
    directory.mkdir()
    (directory / "config.json").write_text("{}")
    (directory / "model.safetensors").write_bytes(weights)
    return directory


def test_fingerprint_is_of_the_files_not_of_their_place(tmp_path: Path) -> None:
    weights = bytes(3 << 20)
    one = write(tmp_path / "one", weights)

    assert fingerprint(one) == fingerprint(write(tmp_path / "copy", weights))
    others = {
        fingerprint(write(tmp_path / "begins", b"x" + weights[1:])),
        fingerprint(write(tmp_path / "ends", weights[1:] + b"x")),
        fingerprint(write(tmp_path / "longer", weights + bytes(1))),
        fingerprint(one, dtype="bfloat16"),
        fingerprint(one, adapter="job-1"),
        fingerprint(one, adapter="job-2"),
    }
    assert len(others | {fingerprint(one)}) == 7
