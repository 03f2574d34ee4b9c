"""Transfer between subjects, sessions and devices: re-centring of groups of SPD matrices."""

from divlearn.transfer.recenter import Recenter

__all__ = ["Recenter"]
