"""Phases of the market: the label that reports put on each month, by one rule for any trajectory (data/README.md)."""

from __future__ import annotations

import numpy as np

REGIMES = ("expansion", "neutral", "recession")
EXPANSION_BELOW, RECESSION_FROM = -0.1, 0.6  # stress index z
SHORTEST = 3  # months; shorter spells are merged


def spells(labels: np.ndarray) -> list[tuple[int, int]]:
    """Runs of equal labels int[T] as (label, months), in order."""
    edges = np.flatnonzero(np.diff(labels)) + 1
    starts, ends = np.concatenate([[0], edges]), np.concatenate([edges, [len(labels)]])
    return [(int(labels[start]), int(end - start)) for start, end in zip(starts, ends, strict=True)]


def regimes(stress: np.ndarray) -> np.ndarray:
    """The phase of each month, int[T] indices into `REGIMES`, from the stress index float[T].

    Recession where z >= 0.6, expansion where z < -0.1, else neutral; a spell under 3 months joins the one before it,
    the first spell the one after it.
    """
    labels = np.where(stress >= RECESSION_FROM, 2, np.where(stress < EXPANSION_BELOW, 0, 1))
    merged: list[tuple[int, int]] = []
    for label, months in spells(labels):
        if merged and (months < SHORTEST or merged[-1][0] == label):
            merged[-1] = (merged[-1][0], merged[-1][1] + months)
        elif len(merged) == 1 and merged[0][1] < SHORTEST:
            merged[0] = (label, merged[0][1] + months)
        else:
            merged.append((label, months))
    return np.repeat([label for label, _ in merged], [months for _, months in merged])
