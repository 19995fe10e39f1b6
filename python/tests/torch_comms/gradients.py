"""Gradients of operations, and operations inside of ``torch.compile``, against references that need no communicator.

The reference has the inputs of all ranks, and the sum of the losses of all ranks.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from roundelay.torchcomms import ReduceOp

Outputs = list[Tensor]
Together = Callable[[list[Tensor]], list[Outputs]]
"""Returns what each rank has, from the inputs of all ranks."""

ROWS = 3


def leaves(ranks: int, rows: int = ROWS) -> list[Tensor]:
    made = torch.Generator().manual_seed(5)
    return [torch.randn(rows * ranks, 2, generator=made).requires_grad_() for _ in range(ranks)]


def weights(outputs: Outputs, rank: int) -> Tensor:
    """Return a loss of one rank, with other factors on every rank and for every element."""
    made = torch.Generator().manual_seed(100 + rank)
    return torch.stack([(each * torch.randn(each.shape, generator=made)).sum() for each in outputs]).sum()


def check(comm: Any, call: Callable[[Tensor], Any], together: Together) -> None:
    rank, ranks = comm.get_rank(), comm.get_size()
    expected, given = leaves(ranks), leaves(ranks)[rank]
    outputs = together([each * 1.5 for each in expected])
    torch.stack([weights(out, at) for at, out in enumerate(outputs)]).sum().backward()
    found = call(given * 1.5)
    own = list(found) if isinstance(found, (list, tuple)) else [found]
    for each, reference in zip(own, outputs[rank], strict=True):
        assert torch.allclose(each, reference, atol=1e-5), "the results differ"
    weights(own, rank).backward()
    assert given.grad is not None and expected[rank].grad is not None, "there is no gradient"
    assert torch.allclose(given.grad, expected[rank].grad, atol=1e-4), f"{given.grad} is not {expected[rank].grad}"


def all_reduce(comm: Any) -> None:
    total: Together = lambda every: [[torch.stack(every).sum(0)] for _ in every]
    check(comm, lambda x: comm.all_reduce(x, ReduceOp.SUM, async_op=False), total)
    check(comm, lambda x: comm.all_reduce(x, ReduceOp.SUM, async_op=True).wait(), total)
    mean: Together = lambda every: [[torch.stack(every).mean(0)] for _ in every]
    check(comm, lambda x: comm.all_reduce(x, ReduceOp.AVG, async_op=False), mean)
    half: Together = lambda every: [[torch.stack(every).sum(0) * 0.5] for _ in every]
    check(comm, lambda x: comm.all_reduce(x, ReduceOp.PREMUL_SUM(0.5), async_op=False), half)
    most: Together = lambda every: [[torch.stack(every).amax(0)] for _ in every]
    check(comm, lambda x: comm.all_reduce(x, ReduceOp.MAX, async_op=False), most)


def gathers(comm: Any) -> None:
    whole: Together = lambda every: [[torch.cat(every)] for _ in every]

    def single(x: Tensor) -> Any:
        output = torch.full((x.shape[0] * comm.get_size(), 2), -7.0)
        return comm.all_gather_single(output, x, async_op=False)

    check(comm, single, whole)
    listed: Together = lambda every: [list(every) for _ in every]
    check(comm, lambda x: comm.all_gather([torch.full_like(x, -7.0) for _ in range(comm.get_size())], x, False), listed)


def scatters(comm: Any) -> None:
    ranks = comm.get_size()
    parts: Together = lambda every: [[part] for part in torch.stack(every).sum(0).chunk(ranks)]
    empty = lambda x: torch.full((x.shape[0] // ranks, 2), -7.0)  # noqa: E731
    check(comm, lambda x: comm.reduce_scatter_single(empty(x), x, ReduceOp.SUM, async_op=False), parts)
    check(comm, lambda x: comm.reduce_scatter(empty(x), list(x.chunk(ranks)), ReduceOp.SUM, async_op=True).wait(), parts)


def all_to_alls(comm: Any) -> None:
    ranks, rank = comm.get_size(), comm.get_rank()
    swapped: Together = lambda every: [[torch.cat([x.chunk(ranks)[r] for x in every])] for r in range(ranks)]
    check(comm, lambda x: comm.all_to_all_single(torch.full_like(x, -7.0), x, async_op=False), swapped)
    # Rank s sends s + 1 rows to rank 0, and the rest to the last one.
    sizes = [[s + 1] + [0] * (ranks - 2) + [ROWS * ranks - s - 1] for s in range(ranks)]

    def unequal(every: list[Tensor]) -> list[Outputs]:
        return [[torch.cat([x.split(sizes[s])[r] for s, x in enumerate(every)])] for r in range(ranks)]

    received = [sizes[s][rank] for s in range(ranks)]

    def call(x: Tensor) -> Any:
        return comm.all_to_all_v_single(torch.full((sum(received), 2), -7.0), x, received, sizes[rank], async_op=False)

    check(comm, call, unequal)


def the_tensor_of_the_call_is_written(comm: Any) -> None:
    leaf = torch.ones(4, requires_grad=True)
    result = comm.all_reduce(leaf, ReduceOp.SUM, async_op=False)
    assert leaf.tolist() == [float(comm.get_size())] * 4 and leaf.is_leaf and result.requires_grad
    plain = torch.ones(4)
    work = comm.all_reduce(plain, ReduceOp.SUM, async_op=False)
    assert type(work).__name__ == "TorchWork", "an operation without a gradient takes the short way"
    with torch.no_grad():
        assert type(comm.all_reduce(leaf, ReduceOp.SUM, async_op=False)).__name__ == "TorchWork"


def what_has_no_gradient_says_so(comm: Any) -> None:
    try:
        comm.broadcast(torch.ones(2, requires_grad=True) * 2, 0, async_op=False)
    except RuntimeError as error:
        assert "broadcast has no gradient" in str(error)
    else:
        raise AssertionError("broadcast has dropped a gradient")


def compiled(comm: Any) -> None:
    ranks, rank = comm.get_size(), comm.get_rank()

    def reduced(x: Tensor, is_async: bool) -> Tensor:
        y = x * 2
        work = comm.all_reduce(y, ReduceOp.SUM, async_op=is_async)
        if is_async:
            work.wait()
        return y + 1

    def moved(x: Tensor) -> Tensor:
        whole = torch.empty(x.shape[0] * ranks)
        comm.all_gather_single(whole, x, async_op=False)
        whole *= 3
        part = torch.empty(x.shape[0])
        comm.reduce_scatter_single(part, whole, ReduceOp.SUM, async_op=False)
        swapped = torch.empty_like(part)
        comm.all_to_all_single(swapped, part, async_op=False)
        comm.broadcast(swapped, 0, async_op=False)
        return swapped

    every = [torch.arange(float(ranks * 2)) + 10 * at for at in range(ranks)]
    for is_async in (False, True):
        found = torch.compile(reduced, fullgraph=True, backend="aot_eager")(every[rank].clone(), is_async)
        assert torch.equal(found, torch.stack(every).sum(0) * 2 + 1), f"{found}, async {is_async}"
    found = torch.compile(moved, fullgraph=True, backend="aot_eager")(every[rank].clone())
    parts = [each * 3 * ranks for each in every]
    assert torch.equal(found, torch.cat([part.chunk(ranks)[0] for part in parts])), f"{found}"


def compiled_gradient(comm: Any) -> None:
    together: Together = lambda every: [[torch.stack(every).sum(0).exp()] for _ in every]

    def call(x: Tensor) -> Tensor:
        y = x.clone()
        comm.all_reduce(y, ReduceOp.SUM, async_op=False)
        return y.exp()

    check(comm, torch.compile(call, fullgraph=True, backend="aot_eager"), together)


CASES = [
    all_reduce,
    gathers,
    scatters,
    all_to_alls,
    the_tensor_of_the_call_is_written,
    what_has_no_gradient_says_so,
    compiled,
    compiled_gradient,
]


def every(comm: Any) -> dict[str, str]:
    """Run all cases; return what each has to complain of."""
    found = {}
    for body in CASES:
        print(body.__name__, flush=True)
        try:
            body(comm)
            found[body.__name__] = ""
        except Exception:
            found[body.__name__] = traceback.format_exc()
    comm.finalize()
    return found
