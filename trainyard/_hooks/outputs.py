"""Finds the weight files of an exported model, from which the report's hash is computed."""

from collections.abc import Iterator
from pathlib import Path

WEIGHT_SUFFIXES = frozenset(
    {".bin", ".ckpt", ".gguf", ".h5", ".keras", ".npy", ".npz", ".onnx", ".onnx_data", ".pt", ".pth", ".safetensors"}
)


def weight_files(directory: Path | str) -> list[str]:
    """Relative paths of the weight files below `directory` in sorted order.

    A script may export its own format: without any known suffix, every file counts.
    """
    names = sorted(_files(Path(directory)))
    return [name for name in names if Path(name).suffix in WEIGHT_SUFFIXES] or names


def _files(root: Path) -> Iterator[str]:
    for path in root.rglob("*"):
        if path.is_file() and not path.is_symlink():
            yield path.relative_to(root).as_posix()
