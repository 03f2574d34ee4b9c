"""Data in shards: in memory, in files larger than memory, or on the workers of a Dask cluster.

All that is learned from shards maps pure functions over them and sums what these return. Matrices
stay where they are: only atoms, parameters, statistics and gradients travel.
"""

from divlearn.sharded.opening import encode, open_shards
from divlearn.sharded.shards import LocalShards, Shards

__all__ = ["LocalShards", "Shards", "encode", "open_shards"]
