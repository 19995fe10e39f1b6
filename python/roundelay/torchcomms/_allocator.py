"""The allocator of GPU memory for torch's pools, by the name that torchcomms has for it."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from .. import _native
from ..errors import UnsupportedError, UsageError


def get_mem_allocator(backend: str) -> Any:
    """Return the allocator of a backend, for ``torch.cuda.MemPool``.

    Its memory is as ``cudaMalloc`` gives it, one allocation a segment, which peers can map: windows of tensors in such
    a pool can be made whatever ``PYTORCH_CUDA_ALLOC_CONF`` says. Every other tensor will do for collectives.

    Raises ``UnsupportedError`` where torch sees no GPU.
    """
    if backend != "roundelay":
        raise UsageError(f"get_mem_allocator: this module has the backend `roundelay` only, not {backend}")
    if not torch.cuda.is_available():
        raise UnsupportedError("get_mem_allocator: torch sees no GPU: allocate_tensor gives memory of the host")
    return _allocator()


@cache
def _allocator() -> Any:
    # It lives as long as the process: so may pools.
    from torch.cuda.memory import CUDAPluggableAllocator

    library: Any = CUDAPluggableAllocator(_native.__file__, "rl_cuda_alloc", "rl_cuda_free")
    return library.allocator()
