"""Descriptors: transformers of images, series and features to SPD matrices."""

from divlearn.descriptors.definite import Regularize
from divlearn.descriptors.fusion import BlockDiagonal
from divlearn.descriptors.kernel import CovarianceKernel, RBFKernelDescriptor
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
