"""Data in shards: in memory, in files larger than memory, or on the workers of a Dask cluster.

Fits call pure functions for each shard and sum the results. Matrices stay where they are: only
atoms, parameters, statistics and gradients travel.
"""

from divlearn.sharded.opening import encode, open_shards
from divlearn.sharded.shards import MemoryShards, Shards

__all__ = ["MemoryShards", "Shards", "encode", "open_shards"]
