"""Rows of a batch in numpy buffers: they join, leave and change places, and only what moves is copied.

Shapes: B batch, R rows that a buffer holds (B or more), S source, H heads, C capacity of the cache, K head width.
"""

import numpy as np


def width_of(*masks: np.ndarray) -> int:
    """Places that the longest source takes, of masks B S."""
    return max(int(mask.sum(axis=1).max()) for mask in masks)


def stacked(first: np.ndarray, second: np.ndarray, width: int, n_rows: int) -> np.ndarray:
    """The rows of two arrays over sources, cut or filled up with zeros to a width, in a buffer of at least `n_rows`."""
    axis = first.ndim // 2  # B S, or B H S K
    shape = [max(n_rows, len(first) + len(second)), *first.shape[1:]]
    shape[axis] = width
    joined = np.zeros(shape, dtype=first.dtype)
    at = 0
    for array in (first, second):
        kept = tuple(slice(0, min(width, array.shape[axis])) if i == axis else slice(None) for i in range(array.ndim))
        joined[at : at + len(array)][kept] = array[kept]
        at += len(array)
    return joined


def grown(buffer: np.ndarray, n_rows: int, kept: int, used: int) -> np.ndarray:
    """The same buffer, or one of more rows with the first `kept` in it, as far as they are written."""
    if n_rows <= len(buffer):
        return buffer
    larger = np.zeros((n_rows, *buffer.shape[1:]), dtype=buffer.dtype)
    larger[:kept, :, :used] = buffer[:kept, :, :used]
    return larger


def moved(buffer: np.ndarray, rows: np.ndarray, used: int | None = None) -> np.ndarray:
    """Rows of a buffer in a new order; in place where they fit, and only those that move."""
    if rows.size <= len(buffer):
        target = buffer
        moving = np.flatnonzero(rows != np.arange(rows.size))
    else:
        target = np.zeros((rows.size, *buffer.shape[1:]), dtype=buffer.dtype)
        moving = np.arange(rows.size)
    if moving.size and used is None:
        target[moving] = buffer[rows[moving]]  # the right side is a copy: nothing is lost
    elif moving.size:
        target[moving, :, :used] = buffer[rows[moving], :, :used]
    return target
