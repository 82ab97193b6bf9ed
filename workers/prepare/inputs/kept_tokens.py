"""Tokenized data that a node keeps in its cache, for later attempts and jobs of a project with the same data.

Ranks of built-in trainers store tokens in their run directory (``workers.trainers.data.stored``). The supervisor copies
them into the cache while the training runs, under a key of all that they depend on; the next ranks with this key read
them there instead of tokenizing. Jobs whose ranks run code of their user neither leave tokens nor read any.
"""

import hashlib
import importlib.util
import json
import logging
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from app.domain.spec.data.tokens import determinants
from app.domain.spec.hyperparameters import parsing
from app.storage.beneath import RefusedFile, directory_opened, file_opened
from trainyard.protocol.run_spec import RunSpec
from workers.attempt_failed import AttemptFailed
from workers.fetching.cache import Cache
from workers.fetching.failures import FetchFailed
from workers.prepare.inputs.input_library import JobInputs, Library, LocalModel
from workers.rank.spec_sections import data_config, training_config

log = logging.getLogger(__name__)

TOKENS = Path("work/datasets")  # below a run directory: where ranks store tokens
_STORED = re.compile(r"source-\d+\.(arrow|json)|[a-z-]+-blocks\.arrow")
# Of a model's directory, what is no weights may change its tokenizer.
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".onnx", ".h5", ".msgpack")
_VERSION = 2  # of what becomes of a record; incremented when tokens of earlier releases must not be read
_TEMPLATES = "additional_chat_templates"
_PACKAGES = ("transformers", "tokenizers", "datasets", "jinja2")
_OUR_CODE = Path(__file__).parents[2] / "trainers" / "data"


@dataclass(frozen=True, kw_only=True)
class KeptTokens:
    """The tokens of one attempt's data in this node's cache, whether they are there or not."""

    library: Library
    key: str

    def restore(self) -> Path | None:
        """A directory with their files for the ranks to read; None if they are not all there."""
        noted = self._cache.noted(self.key)
        if noted is None:
            return None
        directory = self.library.new_directory()
        for name, sha256 in json.loads(noted).items():
            if self._cache.link(sha256, directory / name) is None:
                return None
        return directory

    def keep(self, run_dir: Path) -> None:
        """Copy what the ranks of a run have stored into the cache; without room there, nothing is kept."""
        paths = sorted(path for path in (run_dir / TOKENS).glob("*/*") if _STORED.fullmatch(path.name))
        try:
            with directory_opened(run_dir) as root:
                kept = {path.name: self._adopt(root, path.relative_to(run_dir)) for path in paths}
            if kept:
                self._cache.note(self.key, json.dumps(kept))
        except (OSError, RefusedFile, FetchFailed) as error:
            log.info("the tokens of this data are not kept for other jobs: %s", error)

    @property
    def _cache(self) -> Cache:
        return self.library.file_cache

    def _adopt(self, root: int, path: Path) -> str:
        """The digest of the copy."""
        with file_opened(root, str(path)) as source, self._cache.scratch(os.fstat(source.fileno()).st_size) as scratch:
            copy = scratch / path.name
            with copy.open("xb") as target:
                shutil.copyfileobj(source, target)
            return self._cache.adopt(copy, self.library.new_directory() / path.name)


def with_kept_tokens(
    library: Library, spec: RunSpec, sources: JobInputs, environment: Mapping[str, str], *, is_training: bool
) -> tuple[RunSpec, KeptTokens | None, Path | None]:
    """The spec with the directory of the data's tokens where the node has them, else what keeps them when they are
    made.
    """
    tokens = kept_tokens(library, spec, sources, environment) if is_training else None
    stored = tokens.restore() if tokens is not None else None
    return (spec, tokens, None) if stored is None else (replace(spec, tokens_path=str(stored)), None, stored)


def kept_tokens(
    library: Library, spec: RunSpec, sources: JobInputs, job_environment: Mapping[str, str]
) -> KeptTokens | None:
    """None for jobs that store no tokens, or whose ranks run other code than ours."""
    training, data = training_config(spec), data_config(spec)
    stores = spec.framework != parsing.CUSTOM and not data.streaming
    is_ours = not (training.base_model.trust_remote_code or spec.reward_path or job_environment)
    tokenizer = sources.tokenizer or sources.model
    if not (stores and is_ours and tokenizer) or not all(source.sha256 for source in sources.data):
        return None
    known = {
        "project": library.project,
        "version": _VERSION,
        "software": _software(),
        "document": determinants(spec.training_type, data, spec.hyperparameters),
        "files": [[(file.name, file.sha256) for file in source.files] for source in sources.data],
        "tokenizer": _tokenizer(library, tokenizer),
    }
    return KeptTokens(library=library, key=f"tokens {_digest(known)}")


def _tokenizer(library: Library, model: LocalModel) -> dict[str, str]:
    try:
        places = [model.path, model.path / _TEMPLATES]
        files = [path for place in places if place.is_dir() for path in sorted(place.iterdir())]
        return {
            str(path.relative_to(model.path)): library.digests.of(path)
            for path in files
            if path.is_file() and path.suffix not in _WEIGHTS
        }
    except (OSError, RefusedFile) as error:
        raise AttemptFailed("MODEL_NOT_FOUND", f"the model at {model.path} can't be read: {error}") from error


def _software() -> dict[str, int]:
    """What tokenizes: another release of it has another time."""
    modules = {name: importlib.util.find_spec(name) for name in _PACKAGES}
    origins = {name: spec.origin for name, spec in modules.items() if spec is not None and spec.origin is not None}
    ours = {path.name: str(path) for path in _OUR_CODE.glob("*.py")}
    return {name: os.stat(path).st_mtime_ns for name, path in {**origins, **ours}.items()}  # noqa: PTH116 – of many


def _digest(document: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
