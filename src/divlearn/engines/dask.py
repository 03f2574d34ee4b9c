"""The Dask engine: data on the workers of a cluster."""

from typing import Any, Self

from divlearn.checks import import_extra


class DaskEngine:
    """Workers of a Dask cluster, each of which runs an engine on the matrices it holds.

    It computes nothing itself: estimators that learn from shards take it and call functions on the
    workers, see `divlearn.sharded.open_shards`. ``engine="dask"`` is this with the defaults.

    Parameters
    ----------
    client : distributed.Client, optional
        By default the current client of the process.
    engine : {"auto", "native", "reference", "cuda"}, default="auto"
        Engine on the workers.
    n_threads : int, default=1
        Threads of every task; a worker runs as many tasks at once as it has threads.

    Examples
    --------
    >>> DaskEngine(engine="native")
    DaskEngine(engine='native', n_threads=1)
    """

    name = "dask"

    def __init__(self, client: Any = None, engine: str = "auto", n_threads: int = 1) -> None:
        self.client, self.engine, self.n_threads = client, engine, n_threads

    def __repr__(self) -> str:
        return f"DaskEngine(engine={self.engine!r}, n_threads={self.n_threads})"

    def __deepcopy__(self, memo: Any) -> Self:
        """Return the engine itself: its connection cannot be copied."""
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Drop the connection, which other processes cannot use."""
        return {**self.__dict__, "client": None}

    def connect(self) -> Any:
        """Return the client, or raise if there is none."""
        distributed = import_extra(
            "distributed", "engine='dask' needs dask and distributed", "dask"
        )
        if self.client is not None:
            return self.client
        try:
            return distributed.get_client()
        except ValueError as error:
            raise ValueError(
                "engine='dask' finds no client; make one first, distributed.Client(...), or pass "
                "DaskEngine(client)"
            ) from error


def as_dask(engine: Any) -> DaskEngine | None:
    """Return a `DaskEngine` for itself or for the name "dask", and None for other engines."""
    if isinstance(engine, DaskEngine):
        return engine
    return DaskEngine() if isinstance(engine, str) and engine == "dask" else None
