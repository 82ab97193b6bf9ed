"""Vectors of rows as columns of tables and as matrices."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from workers.trainers.inference.rows import Array, OutputRow


def vector_column(
    rows: Sequence[OutputRow], dimension: int, dtype: np.dtype[np.floating], *, each_token: bool
) -> pa.Array:
    """Fixed-size lists; of ``each_token`` a list of them for each row. Rows without an answer are null."""
    vectors = [None if row.answer is None else row.answer.vector for row in rows]
    mask = pa.array([each is None for each in vectors])
    if not each_token:
        flat = [np.zeros(dimension, dtype) if each is None else each for each in vectors]
        return pa.FixedSizeListArray.from_arrays(_flat(flat, dtype), dimension, mask=mask)
    lengths = [0 if each is None else len(each) for each in vectors]
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    inner = pa.FixedSizeListArray.from_arrays(_flat([each for each in vectors if each is not None], dtype), dimension)
    return pa.ListArray.from_arrays(offsets, inner, mask=mask)


def matrix_of(rows: Sequence[OutputRow], dimension: int, dtype: np.dtype[np.floating]) -> tuple[Array, Array]:
    """A row for each vector of the answered records, and for each the number of its record."""
    found = [
        (row.index, np.atleast_2d(row.answer.vector)) for row in rows if row.answer and row.answer.vector is not None
    ]
    empty = np.zeros((0, dimension), dtype)
    matrix = np.concatenate([empty, *(vectors for _, vectors in found)])
    index = np.concatenate([np.zeros(0, np.int64), *(np.full(len(vectors), number) for number, vectors in found)])
    return matrix, index.astype(np.int64)


def _flat(vectors: Sequence[Array], dtype: np.dtype[np.floating]) -> pa.Array:
    whole = np.concatenate([each.reshape(-1) for each in vectors]) if vectors else np.zeros(0, dtype)
    return pa.array(whole.astype(dtype))
