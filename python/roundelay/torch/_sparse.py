"""Sums of sparse tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ._memory import address, readable, units

if TYPE_CHECKING:
    from ._calls import Calls


class _Here:
    """Options of a part of the sum: on this thread, with the timeout of the whole."""

    asyncOp = False

    def __init__(self, opts: Any) -> None:
        self.timeout = opts.timeout


def sum_sparse(calls: Calls, tensor: Tensor, opts: Any) -> None:
    """Sum COO tensors of all ranks, in place."""
    own = tensor.detach().coalesce()
    here = _Here(opts)
    indices, values = readable(own.indices()), readable(own.values())
    device = tensor.device
    rows = torch.tensor([indices.shape[1]], dtype=torch.int64, device=device)
    counts = torch.zeros(calls.size, dtype=torch.int64, device=device)
    calls.execute(here, None, [("all_gather", address(counts), address(rows))], (), None, device)
    lengths: list[int] = counts.tolist()

    def collected(part: Tensor, width: int) -> Tensor:
        flat = torch.empty(sum(lengths) * width, dtype=part.dtype, device=device)
        cuts = [length * width * units(part) for length in lengths]
        calls.execute(here, None, [("all_gather", (address(flat), cuts), address(part))], (), None, device)
        return flat

    dims = indices.shape[0]
    inner = values.shape[1:]
    width = 1
    for extent in inner:
        width *= extent
    # A row an element, so that the ranks' parts stand one after the other.
    all_indices = collected(indices.t().contiguous(), dims).view(-1, dims).t()
    all_values = collected(values, width).view(-1, *inner)
    with torch.no_grad():
        tensor.copy_(torch.sparse_coo_tensor(all_indices, all_values, tensor.shape).coalesce())
