"""Data locality: how much of a job's model and data each node has cached; the planner prefers such nodes. Pure."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from app.domain.spec.model import JobDocument
from app.domain.spec.secrets import unsigned

# A source on more nodes than this is scored per kind of node, a rarer one per node.
FEW_HOLDERS = 64
_TENTHS = 10
_HUB = "hf://"


@dataclass(frozen=True, kw_only=True)
class Holding:
    """How many bytes of a source a node has cached, and the size of the whole source."""

    held_bytes: int
    size_bytes: int


@dataclass(frozen=True, kw_only=True, eq=False)  # one instance per source, compared by identity
class CachedInput:
    """A model or data set; ``held``: node → fraction of its bytes that is cached there, 0 to 1."""

    size_bytes: int
    held: Mapping[str, float]


@dataclass(frozen=True, eq=False)  # one instance for all jobs with the same sources, compared by identity
class Cached:
    """The sources that a job reads and some node has cached, each with its weight in tenths of the job's bytes."""

    sources: tuple[tuple[CachedInput, int], ...] = ()

    @cached_property
    def by_node(self) -> Mapping[str, float]:
        """Node → fraction of the job's bytes that it has cached; nodes without any are left out."""
        tenths: dict[str, float] = {}
        for source, count in self.sources:
            for node, part in source.held.items():
                tenths[node] = tenths.get(node, 0.0) + count * part
        return {node: count / _TENTHS for node, count in tenths.items()}

    def on(self, node: str) -> float:
        return sum(count * source.held.get(node, 0.0) for source, count in self.sources) / _TENTHS

    @cached_property
    def rare(self) -> frozenset[str]:
        """The nodes that have a source which at most ``FEW_HOLDERS`` nodes have."""
        return frozenset(node for source, _ in self.sources if not _is_frequent(source) for node in source.held)

    @cached_property
    def frequent(self) -> tuple[tuple[CachedInput, int], ...]:
        """The sources that many nodes have: the same for many jobs, whatever else each of them reads."""
        return tuple(each for each in self.sources if _is_frequent(each[0]))


NOT_CACHED = Cached()


def cached(sources: Iterable[CachedInput]) -> Cached:
    """Round weights to tenths, so that jobs with one model and different data mostly share a planner cache entry."""
    held = [source for source in sources if source.held and source.size_bytes]
    total, before, found = sum(source.size_bytes for source in held), 0, []
    for source in held:
        after = before + source.size_bytes
        tenths = round(_TENTHS * after / total) - round(_TENTHS * before / total)
        before = after
        if tenths:
            found.append((source, tenths))
    return Cached(tuple(found)) if found else NOT_CACHED


def source_keys(document: JobDocument) -> Sequence[str]:
    """Return the keys of the model, tokenizer and data that a job document names, without duplicates."""
    base = document.training_config.base_model
    keys = [source_key("model", base.model_id, base.revision)]
    if base.tokenizer_id:
        keys.append(source_key("model", base.tokenizer_id))
    keys += [source_key("data", each.path, each.split) for each in document.data_config.sources]
    return list(dict.fromkeys(keys))


@lru_cache(maxsize=1 << 14)  # called twice per job in a window; most jobs name few models
def source_key(kind: str, location: str, part: str | None = None) -> str:
    """The key under which nodes report a source; ``part`` is a model's revision, or the split of data.

    It is a digest, so that users who may list nodes do not learn where another project's data lies. A hub model has
    the same key under its id and under its URI.
    """
    if kind == "model" and location.startswith(_HUB):
        location, _, revision = location.removeprefix(_HUB).partition("@")
        part = revision or part
    return hashlib.sha256(f"{kind}\n{unsigned(location)}\n{part or ''}".encode()).hexdigest()[:32]


def _is_frequent(source: CachedInput) -> bool:
    return len(source.held) > FEW_HOLDERS
