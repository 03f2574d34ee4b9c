"""Whether shards are those of another day: a fingerprint of every block, made where it lies."""

from __future__ import annotations

from divlearn.models.storage import fingerprint
from divlearn.sharded.blocks import Block

__all__ = ["fingerprint_block"]


def fingerprint_block(block: Block) -> str:
    """SHA-256 of the matrices of a block, of what they are to predict and of their weights."""
    return fingerprint((block.data.matrices, block.y, block.weights))
