"""Names of fine-tuned models and of their checkpoints: ``ft:BASE:PROJECT:SUFFIX:ID`` and ``…:ckpt-step-N``."""

import re
from dataclasses import dataclass

SUFFIX = re.compile(r"[A-Za-z0-9-]{1,64}")
SUFFIX_RULE = "use 1 to 64 letters, digits and dashes"
# Of a base model that an administrator registers: it stands between colons in the names of its fine-tunes.
BASE_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
BASE_NAME_RULE = "use 1 to 64 letters, digits, dots, dashes and underscores, that begin and end with a letter or digit"
PREFIX = "ft:"
_FINE_TUNE = re.compile(r"(ft:[^:]{1,64}:[^:]{1,63}:[^:]{0,64}:[0-9a-f]{8})(?::ckpt-step-([0-9]{1,18}))?")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_BASE = 64
_ID_LENGTH = 8


@dataclass(frozen=True, kw_only=True)
class FineTuneName:
    """``name`` is that of the fine-tuned model, ``step`` that of one of its checkpoints."""

    name: str
    step: int | None


def ft_name(base: str, project: str, suffix: str | None, job_id: str) -> str:
    """The name of what a job makes of the model ``base``: a name, a location, or a fine-tuned model, whose base counts.

    The last characters of a job's ID are random, so that they tell its models from those of other jobs.
    """
    return f"{PREFIX}{_short(base)}:{project}:{suffix or ''}:{job_id[-_ID_LENGTH:]}"


def checkpoint_name(name: str, step: int) -> str:
    return f"{name}:ckpt-step-{step}"


def parsed(name: str) -> FineTuneName | None:
    """None for what is no name of a fine-tuned model."""
    found = _FINE_TUNE.fullmatch(name)
    return FineTuneName(name=found[1], step=int(found[2]) if found[2] else None) if found is not None else None


def _short(base: str) -> str:
    if parsed(base) is not None:
        return base.split(":")[1]
    last = _NOT_IN_NAMES.sub("-", base.rstrip("/").rpartition("/")[2]).strip("-")
    return last[:_LONGEST_BASE] or "model"
