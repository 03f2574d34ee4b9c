"""Log-eigenvalues around centres, as clusters hold them."""

from __future__ import annotations

import numpy as np

from divlearn.cluster.clusters import Spectra, hold_cloud
from divlearn.engines import get_engine
from divlearn.sharded.blocks import block_in_memory
from divlearn.sharded.shards import MemoryShards


def spectra_of(*clouds, engine="auto"):
    """Clouds (t, weights), one for each centre."""
    chosen, d = get_engine(engine), clouds[0][0].shape[1]
    shards = MemoryShards(block_in_memory(chosen, np.eye(d)[None], None, np.ones(1)))
    held = [[hold_cloud(chosen, t, weights) for t, weights in clouds]]
    return Spectra(shards, held, np.array([weights.sum() for _, weights in clouds]))
