"""The identities of what an attempt reads: digests of data and base model, and the commits of hubs."""

import logging
import re

from app.domain.model_cards.inputs import ReadInputs, ReadModel, ReadSource
from app.domain.spec.model import BaseModel
from app.domain.spec.rules.model import is_result
from workers.attempt_failed import AttemptFailed
from workers.prepare.inputs.input_library import JobInputs, Library, LocalData, LocalModel
from workers.prepare.inputs.model_files import digest_of

log = logging.getLogger(__name__)
_MOST_SAMPLED = 2_000  # files: more are not worth the delay of the start
_COMMIT = re.compile("[0-9a-f]{40,64}")


def read_inputs(library: Library, base: BaseModel, sources: JobInputs) -> ReadInputs:
    return ReadInputs(
        base=None if sources.model is None or is_result(base) else _model(library, sources.model),
        data=tuple(_source(i, source) for i, source in enumerate(sources.data)),
    )


def _model(library: Library, found: LocalModel) -> ReadModel | None:
    commit, sampled = _checked(found.commit), _sampled(library, found)
    return ReadModel(commit=commit, sampled_sha256=sampled) if commit or sampled else None


def _sampled(library: Library, found: LocalModel) -> str | None:
    """None without a digest, which no job fails for: its training may not read what is sampled here."""
    try:
        return digest_of([found.path], library.opened, most_files=_MOST_SAMPLED) or None
    except AttemptFailed as error:
        log.warning("the base model is recorded without a digest: %s", error)
        return None


def _source(index: int, found: LocalData) -> ReadSource:
    digest = found.files[0].sha256 if len(found.files) == 1 else found.sha256
    return ReadSource(
        index=index,
        size_bytes=sum(file.size_bytes for file in found.files) if found.files else None,
        sha256=digest or None,
        commit=_checked(found.commit),
    )


def _checked(commit: str) -> str | None:
    """A hub's server says what its commits are called."""
    return commit if _COMMIT.fullmatch(commit) else None
