"""The CUDA engine; see `divlearn.engines.cuda.engine`."""
