"""Descriptors: transformers of images, series and features to SPD matrices."""

from divlearn.descriptors.kernel import CovarianceKernel, RBFKernelDescriptor
from divlearn.descriptors.matrices import BlockDiagonal, Regularize
from divlearn.descriptors.pixels import PRESETS, GaborBank, Preset
from divlearn.descriptors.region import RegionCovariance, Regions
from divlearn.descriptors.series import GaussianEmbedding

__all__ = [
    "PRESETS",
    "BlockDiagonal",
    "CovarianceKernel",
    "GaborBank",
    "GaussianEmbedding",
    "Preset",
    "RBFKernelDescriptor",
    "RegionCovariance",
    "Regions",
    "Regularize",
]
