"""How much of a job's model and data the nodes have in their caches, as the planner prefers nodes by it. Pure."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from app.domain.spec.secrets import unsigned

# A source that more nodes hold is found by kinds of nodes, one that fewer hold by looking at each of them.
FEW_HOLDERS = 64
_TENTHS = 10
_HUB = "hf://"


@dataclass(frozen=True, kw_only=True)
class Holding:
    """How much of a source a node has, and how large all of it is."""

    held_bytes: int
    size_bytes: int


@dataclass(frozen=True, kw_only=True, eq=False)  # one for all jobs that name it, known by itself
class Source:
    """A model or data set; ``held``: node → the part of its bytes that is there."""

    size_bytes: int
    held: Mapping[str, float]


@dataclass(frozen=True, eq=False)  # one for all jobs that name the same sources
class Cached:
    """What a job reads, as far as any node holds it: each source with how many tenths of all its bytes are of it."""

    sources: tuple[tuple[Source, int], ...] = ()

    @cached_property
    def by_node(self) -> Mapping[str, float]:
        """Node → the part of the job's bytes that it holds, of those that hold any."""
        tenths: dict[str, float] = {}
        for source, count in self.sources:
            for node, part in source.held.items():
                tenths[node] = tenths.get(node, 0.0) + count * part
        return {node: count / _TENTHS for node, count in tenths.items()}

    def on(self, node: str) -> float:
        return sum(count * source.held.get(node, 0.0) for source, count in self.sources) / _TENTHS

    @cached_property
    def rare(self) -> frozenset[str]:
        """The nodes that hold what few do."""
        return frozenset(node for source, _ in self.sources if not _is_frequent(source) for node in source.held)

    @cached_property
    def frequent(self) -> tuple[tuple[Source, int], ...]:
        """What many nodes hold: the same for many jobs, whatever else each of them reads."""
        return tuple(each for each in self.sources if _is_frequent(each[0]))


NOWHERE = Cached()


def cached(sources: Iterable[Source]) -> Cached:
    """Of sizes in tenths, so that jobs that read one model and different data are mostly alike to the planner."""
    held = [source for source in sources if source.held and source.size_bytes]
    total, before, found = sum(source.size_bytes for source in held), 0, []
    for source in held:
        after = before + source.size_bytes
        tenths = round(_TENTHS * after / total) - round(_TENTHS * before / total)
        before = after
        if tenths:
            found.append((source, tenths))
    return Cached(tuple(found)) if found else NOWHERE


def source_keys(spec: Mapping[str, Any]) -> Sequence[str]:
    """Of the model, the tokenizer and the data that a job's document names, each once."""
    base = spec["training_config"]["base_model"]
    keys = [source_key("model", base["model_id"], base.get("revision"))]
    if base.get("tokenizer_id"):
        keys.append(source_key("model", base["tokenizer_id"]))
    keys += [source_key("data", each["path"], each.get("split")) for each in spec["data_config"]["sources"]]
    return list(dict.fromkeys(keys))


@lru_cache(maxsize=1 << 14)  # a planner asks twice for each of a window of jobs, most of which name few models
def source_key(kind: str, location: str, part: str | None = None) -> str:
    """The name by which nodes and planner know a source; ``part`` is a model's revision, or the split of data.

    A digest: those who may look at nodes need not learn where another project's data lies. A model of the hub is the
    same under its id and under its URI.
    """
    if kind == "model" and location.startswith(_HUB):
        location, _, revision = location.removeprefix(_HUB).partition("@")
        part = revision or part
    return hashlib.sha256(f"{kind}\n{unsigned(location)}\n{part or ''}".encode()).hexdigest()[:32]


def _is_frequent(source: Source) -> bool:
    return len(source.held) > FEW_HOLDERS
