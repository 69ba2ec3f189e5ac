"""The package safe_gpu (safe-gpu 2.0), implemented with Berth's leases."""

from __future__ import annotations

from . import safe_gpu
from .safe_gpu import PyCudaPlaceholder, PytorchPlaceholder, TensorflowPlaceholder, claim_gpus, release_gpus

__all__ = ["PyCudaPlaceholder", "PytorchPlaceholder", "TensorflowPlaceholder", "claim_gpus", "release_gpus",
           "safe_gpu"]
