"""The experiments of the paper, run with divlearn as any user would: ``python -m paper``."""
