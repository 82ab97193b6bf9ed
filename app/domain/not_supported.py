"""Documented fields and values of a job document that this version does not act on yet, so that none is ignored."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.domain.errors import NotSupportedYet
from app.domain.job_document import Document, trainer


@dataclass(frozen=True)
class Gap:
    """A field that must stay at its default; `read_by` are the frameworks that act on it all the same."""

    path: str
    allowed: tuple[Any, ...]
    way_out: str
    read_by: tuple[str, ...] = ()


GAPS: tuple[Gap, ...] = (
    Gap(
        "training_config.framework.config", (), "leave it out: use hyperparameters",
        read_by=("CUSTOM", "DEEPSPEED", "FSDP", "MEGATRON"),
    ),
)  # fmt: skip


def refuse_gaps(document: Document) -> None:
    """Raise NotSupportedYet for the first field of the document that would not be acted on."""
    framework, _ = trainer(document)
    for gap in GAPS:
        if framework in gap.read_by:
            continue
        value = _value(document, gap.path)
        if value not in (None, "", [], {}) and not _is_one_of(value, gap.allowed):
            raise NotSupportedYet(
                f"{gap.path} is documented but not supported by this version; {gap.way_out}", field=gap.path
            )


def _is_one_of(value: Any, allowed: tuple[Any, ...]) -> bool:
    # 0 == False in Python; a job document means them differently.
    return any(type(value) is type(each) and value == each for each in allowed)


def _value(document: Document, path: str) -> Any:
    node: Any = document
    for step in path.split("."):
        node = node.get(step) if isinstance(node, Mapping) else None
    return node
