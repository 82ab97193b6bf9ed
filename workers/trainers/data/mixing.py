"""Selects stored records for training and validation: held-out shares and weighted mixtures, seeded."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from workers.trainers.failures import InvalidConfig

Indices = npt.NDArray[np.int64]


def held_out(counts: Sequence[int], share: float, seed: int) -> tuple[list[Indices], list[Indices]]:
    """For sources of these sizes: the training indices and the validation indices, both in order.

    The validation data is a share of all records together, at least one. Raises InvalidConfig when nothing is left for
    training.
    """
    total = sum(counts)
    count = max(1, round(total * share)) if share else 0
    if count and count >= total:
        raise InvalidConfig(f"validation_split {share} leaves nothing to train on: there are {total} records")
    chosen = np.zeros(total, dtype=bool)
    chosen[np.random.default_rng(seed).permutation(total)[:count]] = True
    parts = np.split(chosen, np.cumsum(counts)[:-1])
    return [np.flatnonzero(~part) for part in parts], [np.flatnonzero(part) for part in parts]


def mixed(parts: Sequence[Indices], weights: Sequence[float], seed: int) -> list[Indices]:
    """Each source's indices of one epoch, repeated according to its weight.

    The epoch is as long as needed for every record of the most under-represented source to occur once: N = max(n_i /
    p_i) with p the normalized weights; source i contributes round(p_i N) records and is reshuffled and repeated when
    exhausted.
    """
    shares = [weight / sum(weights) for weight in weights]
    # An empty source cannot be repeated.
    total = max((len(part) / share for part, share in zip(parts, shares, strict=True)), default=0.0)
    generators = np.random.default_rng(seed).spawn(len(parts))
    return [
        _rounds(part, round(share * total), generator)
        for part, share, generator in zip(parts, shares, generators, strict=True)
    ]


def joined(parts: Sequence[Indices], counts: Sequence[int]) -> Indices:
    """Indices into the concatenated sources."""
    offsets = np.cumsum([0, *counts[:-1]])
    return np.concatenate([part + offset for part, offset in zip(parts, offsets, strict=True)])


def permuted(indices: Indices, seed: int) -> Indices:
    """The indices in random order."""
    return np.random.default_rng(seed).permutation(indices)


def _rounds(part: Indices, count: int, generator: np.random.Generator) -> Indices:
    whole, rest = divmod(count, len(part)) if len(part) else (0, 0)
    rounds = [part] * whole + ([np.sort(generator.permutation(part)[:rest])] if rest else [])
    return np.concatenate(rounds) if rounds else part[:0]
