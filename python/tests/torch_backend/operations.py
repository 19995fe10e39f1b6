"""The operations of torch.distributed, each by roundelay and by Gloo, or a reference where Gloo has it not."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import odd
import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import AllgatherOptions

Case = Callable[[Any], Any]
CASES: dict[str, Case] = {}
ALONE: dict[str, Case] = {}
"""Cases that Gloo does not have: they return pairs of what is and what should be."""


class Array(tuple[int, ...]):
    """Numbers that are not asked whether there are any, as an array of numpy refuses it."""

    def __bool__(self) -> bool:
        raise ValueError("the truth of an array is ambiguous")


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


def alone(function: Case) -> Case:
    ALONE[function.__name__] = function
    return function


def values(count: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    """Small whole numbers that differ by rank, so that every order of additions gives the same."""
    made = torch.arange(count) * (dist.get_rank() + 2) % 7 + seed + 1
    return made.to(dtype)


for _dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int32):

    def _reduced(group: Any, dtype: torch.dtype = _dtype) -> Any:
        results = []
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX):
            for count in (0, 1, 5, 1000):
                tensor = values(count, dtype)
                dist.all_reduce(tensor, op, group)
                results.append(tensor)
        return results

    CASES[f"all_reduce_{str(_dtype)[6:]}"] = _reduced


@case
def all_reduce_bits(group: Any) -> Any:
    results = []
    for op in (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR):
        tensor = values(9, torch.int64)
        dist.all_reduce(tensor, op, group)
        results.append(tensor)
    return results


@case
def all_reduce_complex(group: Any) -> Any:
    tensor = torch.complex(values(6), values(6, seed=3))
    dist.all_reduce(tensor, group=group)
    return tensor


@case
def all_reduce_strided(group: Any) -> Any:
    tensor = values(12).view(3, 4).t()
    dist.all_reduce(tensor, group=group)
    return tensor


@alone
def odd_tensors(group: Any) -> Any:
    rank, size = dist.get_rank(), dist.get_world_size()
    face = odd.Face(
        rank,
        size,
        lambda tensor: dist.all_reduce(tensor, group=group),
        lambda tensor, root: dist.broadcast(tensor, root, group=group),
        lambda outputs, tensor: dist.all_gather(outputs, tensor, group=group),
        lambda tensor: dist.isend(tensor, (rank + 1) % size, group),
        lambda tensor: dist.irecv(tensor, (rank - 1) % size, group),
        is_dispatched=True,
    )
    return [(odd.faults(face), [])]


@alone
def odd_tensors_undispatched(group: Any) -> Any:
    """What the backend makes of them where the dispatcher of PyTorch does not come first."""
    group = group or dist.distributed_c10d._get_default_group()
    backend = group._get_backend(torch.device("cpu"))
    rank, size = dist.get_rank(), dist.get_world_size()

    def broadcast(tensor: Tensor, root: int) -> None:
        opts = dist.BroadcastOptions()
        opts.rootRank = root
        backend.broadcast([tensor], opts).wait()

    face = odd.Face(
        rank,
        size,
        lambda tensor: backend.allreduce([tensor], dist.AllreduceOptions()).wait(),
        broadcast,
        lambda outputs, tensor: backend.allgather([outputs], [tensor], AllgatherOptions()).wait(),
        lambda tensor: backend.send([tensor], (rank + 1) % size, 0),
        lambda tensor: backend.recv([tensor], (rank - 1) % size, 0),
    )
    return [(odd.faults(face), [])]


@case
def all_reduce_async(group: Any) -> Any:
    tensors = [values(1000, seed=i) for i in range(5)]
    works = [dist.all_reduce(tensor, group=group, async_op=True) for tensor in tensors]
    for work in reversed(works):
        work.wait()
        work.wait()
    return tensors


@case
def all_reduce_dropped(group: Any) -> Any:
    for _ in range(20):
        dist.all_reduce(values(10000), group=group, async_op=True)
    dist.barrier(group)
    return None


@case
def all_reduce_future(group: Any) -> Any:
    work = dist.all_reduce(values(7), group=group, async_op=True)
    inner = torch.ones(3)

    def then(future: Any) -> Tensor:
        dist.all_reduce(inner, group=group)
        result = future.value()
        return (result[0] if isinstance(result, list) else result) * 2

    return [work.get_future().then(then).wait(), inner]


@case
def all_reduce_sparse(group: Any) -> Any:
    tensor = torch.sparse_coo_tensor([[dist.get_rank(), 4]], [1.0, 2.0], (6,), check_invariants=False)
    dist.all_reduce(tensor, group=group)
    return tensor.to_dense()


@case
def all_reduce_coalesced(group: Any) -> Any:
    tensors = [values(n) for n in (3, 1, 100)]
    with dist._coalescing_manager(group, async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor, group=group)
    manager.wait()
    return tensors


@case
def broadcast(group: Any) -> Any:
    results = []
    for dtype in (torch.float32, torch.int64, torch.uint8, torch.float64):
        for root in range(dist.get_world_size()):
            tensor = values(8, dtype, seed=root)
            dist.broadcast(tensor, root, group)
            results.append(tensor)
    return results


@case
def broadcast_strided(group: Any) -> Any:
    tensor = values(12).view(3, 4).t()
    dist.broadcast(tensor, 1, group)
    return tensor


@case
def reduce(group: Any) -> Any:
    tensor = values(100)
    dist.reduce(tensor, 1, group=group)
    return tensor if dist.get_rank() == 1 else None


@case
def all_gather(group: Any) -> Any:
    outputs = [torch.empty(2, 3) for _ in range(dist.get_world_size())]
    dist.all_gather(outputs, values(6).view(2, 3), group)
    return outputs


@case
def all_gather_strided(group: Any) -> Any:
    outputs = [torch.empty(3, 2).t() for _ in range(dist.get_world_size())]
    dist.all_gather(outputs, values(6).view(2, 3), group)
    return outputs


@case
def all_gather_single(group: Any) -> Any:
    output = torch.empty(5 * dist.get_world_size())
    dist.all_gather_into_tensor(output, values(5), group)
    return output


@case
def all_gather_in_place(group: Any) -> Any:
    output = torch.zeros(5 * dist.get_world_size())
    part = output[5 * dist.get_rank() :][:5]
    part.copy_(values(5))
    dist.all_gather_into_tensor(output, part, group)
    return output


@case
def gather(group: Any) -> Any:
    outputs = [torch.empty(4) for _ in range(dist.get_world_size())] if dist.get_rank() == 1 else None
    dist.gather(values(4), outputs, 1, group)
    return outputs


@case
def scatter(group: Any) -> Any:
    output = torch.empty(4)
    inputs = [torch.full((4,), float(r)) for r in range(dist.get_world_size())] if dist.get_rank() == 1 else None
    dist.scatter(output, inputs, 1, group)
    return output


@case
def reduce_scatter_single(group: Any) -> Any:
    output = torch.empty(5)
    dist.reduce_scatter_tensor(output, values(5 * dist.get_world_size()), group=group)
    return output


@case
def all_to_all_single(group: Any) -> Any:
    size, rank = dist.get_world_size(), dist.get_rank()
    output = torch.empty(2 * size)
    dist.all_to_all_single(output, values(2 * size), group=group)
    sent = [rank + i + 1 for i in range(size)]
    data, uneven = values(sum(sent) * 3).view(-1, 3), torch.empty(sum(sent), 3)
    dist.all_to_all_single(uneven, data, sent, sent, group)
    arrays = torch.empty_like(uneven)
    dist.all_to_all_single(arrays, data, Array(sent), Array(sent), group)
    return [output, uneven, arrays]


@case
def objects(group: Any) -> Any:
    size, rank = dist.get_world_size(), dist.get_rank()
    gathered: list[Any] = [None] * size
    dist.all_gather_object(gathered, {"rank": rank, "text": "x" * (10 * rank)}, group)
    shared: list[Any] = [f"from {rank}", rank]
    dist.broadcast_object_list(shared, 1, group)
    mine: list[Any] = [None]
    dist.scatter_object_list(mine, [f"to {r}" for r in range(size)] if rank == 0 else None, 0, group)
    return [gathered, shared, mine]


@case
def send_recv(group: Any) -> Any:
    size, rank = dist.get_world_size(), dist.get_rank()
    received = []
    for source in range(size):
        for target in range(size):
            if source == target:
                continue
            if rank == source:
                dist.send(values(9, seed=target), target, group)
            if rank == target:
                tensor = torch.empty(9)
                dist.recv(tensor, source, group)
                received.append(tensor)
    return received


@case
def batch(group: Any) -> Any:
    size, rank = dist.get_world_size(), dist.get_rank()
    received = [torch.empty(n) for n in (3, 200_000)]
    operations = [dist.P2POp(dist.irecv, tensor, (rank - 1) % size, group) for tensor in received]
    operations += [dist.P2POp(dist.isend, values(n), (rank + 1) % size, group) for n in (3, 200_000)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    return received


@case
def receive_first(group: Any) -> Any:
    size, rank = dist.get_world_size(), dist.get_rank()
    tensor = torch.empty(300_000)
    receiving = dist.irecv(tensor, (rank - 1) % size, group)
    sending = dist.isend(values(300_000), (rank + 1) % size, group)
    receiving.wait()
    sending.wait()
    return tensor


@case
def receive_first_others_after(group: Any) -> Any:
    size, rank = dist.get_world_size(), dist.get_rank()
    tensor = torch.empty(4)
    works = [dist.irecv(tensor, (rank - 1) % size, group), dist.isend(values(4), (rank + 1) % size, group)]
    dist.barrier(group)
    for work in works:
        work.wait()
    return tensor


@case
def tags_out_of_order(group: Any) -> Any:
    size, rank = dist.get_world_size(), dist.get_rank()
    first, second = torch.empty(5), torch.empty(7)
    waiting = [dist.irecv(second, (rank - 1) % size, group, 2), dist.irecv(first, (rank - 1) % size, group, 1)]
    waiting.append(dist.isend(values(5, seed=1), (rank + 1) % size, group, 1))
    waiting.append(dist.isend(values(7, seed=2), (rank + 1) % size, group, 2))
    for work in waiting:
        work.wait()
    return [first, second]


@case
def functional(group: Any) -> Any:
    import torch.distributed._functional_collectives as functions

    group = group or dist.distributed_c10d._get_default_group()
    size = dist.get_world_size()
    summed = functions.all_reduce(values(6), "sum", group)
    gathered = functions.all_gather_tensor(values(6), 0, group)
    exchanged = functions.all_to_all_single(values(2 * size), None, None, group)
    several = functions.all_reduce_coalesced([values(3), values(4)], "sum", group)
    return [functions.wait_tensor(each) for each in (summed, gathered, exchanged, *several)]


@case
def subgroup(group: Any) -> Any:
    backend = "gloo" if group is not None else "roundelay"
    part = dist.new_group([0, 1], backend=backend)
    tensor = values(5)
    if dist.get_rank() < 2:
        dist.all_reduce(tensor, group=part)
        dist.destroy_process_group(part)
    return tensor


@case
def barriers(group: Any) -> Any:
    dist.barrier(group)
    dist.barrier(group, async_op=True).wait()
    for wait_all in (False, True):
        try:
            dist.monitored_barrier(group, wait_all_ranks=wait_all)
        except ValueError as error:
            # Before 2.14 torch itself has it for groups of the name gloo only; the group's method is there.
            assert "only implemented for GLOO" in str(error) and torch.__version__ < "2.14", error
            dist.group.WORLD.monitored_barrier(timedelta(seconds=30), wait_all)
    return None


@alone
def average(group: Any) -> Any:
    size, rank = dist.get_world_size(), dist.get_rank()
    tensor, scaled = torch.full((5,), rank * 2.0), torch.ones(4)
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    dist.all_reduce(scaled, dist._make_nccl_premul_sum(2.0))
    return [(tensor, torch.full((5,), size - 1.0)), (scaled, torch.full((4,), 2.0 * size))]


@alone
def types(group: Any) -> Any:
    size, rank = dist.get_world_size(), dist.get_rank()
    short = torch.full((3,), rank + 1, dtype=torch.int16)
    dist.all_reduce(short)
    logical = torch.tensor([rank == 0, False, True])
    dist.all_reduce(logical)
    tiny = torch.full((4,), float(rank + 1)).to(torch.float8_e4m3fn)
    dist.broadcast(tiny, 1)
    return [
        (short, torch.full((3,), size * (size + 1) // 2, dtype=torch.int16)),
        (logical, torch.tensor([True, False, True])),
        (tiny.float(), torch.full((4,), 2.0)),
    ]


@alone
def unequal(group: Any) -> Any:
    size, rank = dist.get_world_size(), dist.get_rank()
    outputs = [torch.empty(r + 1) for r in range(size)]
    dist.all_gather(outputs, torch.full((rank + 1,), float(rank)))
    part = torch.empty(rank + 1)
    dist.reduce_scatter(part, [torch.full((r + 1,), float(r)) for r in range(size)])
    received = [torch.empty(r + 1) for r in range(size)]
    dist.all_to_all(received, [torch.full((rank + 1,), float(rank)) for _ in range(size)])
    wanted = torch.cat([torch.full((r + 1,), float(r)) for r in range(size)])
    return [
        (torch.cat(outputs), wanted),
        (part, torch.full((rank + 1,), float(rank * size))),
        (torch.cat(received), wanted),
    ]


@alone
def nothing(group: Any) -> Any:
    """Calls without elements on all ranks, and parts without elements on some, between calls that have some."""
    size, rank = dist.get_world_size(), dist.get_rank()
    none, tensor = torch.empty(0), torch.ones(3)
    for _ in range(2):
        dist.all_reduce(none)
        dist.all_reduce(none.view(0, 3).to(torch.int64), dist.ReduceOp.MAX)
        dist.broadcast(none, 1)
        dist.reduce(none, 0)
        dist.all_gather([none] * size, none)
        dist.all_gather_into_tensor(none, none)
        dist.reduce_scatter_tensor(none, none)
        dist.all_to_all_single(none, none)
        dist.gather(none, [none] * size if rank == 1 else None, 1)
        dist.scatter(none, [none] * size if rank == 1 else None, 1)
        dist.all_reduce(tensor)
    with dist._coalescing_manager(async_ops=True) as manager:
        for part in (none, tensor, none):
            dist.all_reduce(part)
    manager.wait()
    # Rank 0 has nothing for the others, and each has r elements for the last.
    sent = [0] * (size - 1) + [rank]
    received = list(range(size)) if rank == size - 1 else [0] * size
    output = torch.empty(sum(received))
    dist.all_to_all_single(output, torch.full((rank,), float(rank)), received, sent)
    outputs = [torch.empty(r) for r in range(size)]
    dist.all_gather(outputs, torch.full((rank,), float(rank)))
    steps = torch.arange(size)
    wanted = steps.repeat_interleave(steps).float()
    if rank == 0:
        dist.send(none, 1)
    elif rank == 1:
        dist.recv(none, 0)
    return [
        (tensor, torch.full((3,), float(size**3))),
        (output, wanted if rank == size - 1 else none),
        (torch.cat(outputs), wanted),
    ]


@alone
def coalesced_singles(group: Any) -> Any:
    size, rank = dist.get_world_size(), dist.get_rank()
    gathered = [torch.empty(2 * size), torch.empty(3 * size)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for output in gathered:
            dist.all_gather_into_tensor(output, torch.full((output.numel() // size,), float(rank)))
    manager.wait()
    reduced = [torch.empty(2), torch.empty(3)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for output in reduced:
            dist.reduce_scatter_tensor(output, torch.ones(output.numel() * size))
    manager.wait()
    steps = torch.arange(size).float()
    return [
        *zip(gathered, (steps.repeat_interleave(2), steps.repeat_interleave(3)), strict=True),
        *zip(reduced, (torch.full((2,), float(size)), torch.full((3,), float(size))), strict=True),
    ]


@alone
def hints(group: Any) -> Any:
    import roundelay.torch

    tensor = torch.ones(8)
    with roundelay.torch.hints(algorithm="ring"):
        dist.all_reduce(tensor)
    part = dist.new_group(pg_options=roundelay.torch.Options({"deterministic": "batch_invariant"}))
    dist.all_reduce(tensor, group=part)
    size = dist.get_world_size()
    try:
        with roundelay.torch.hints(algoritm="ring"):
            dist.all_reduce(tensor)
        refused = ""
    except ValueError as error:
        refused = str(error)
    assert "algorithm" in refused, refused
    # The hints of a group decide its calls: this algorithm is one that another hint has to allow.
    named = dist.new_group(pg_options=roundelay.torch.Options({"algorithm": "all_reduce.compressed"}))
    try:
        dist.all_reduce(torch.ones(8), group=named)
        refused = ""
    except Exception as error:
        refused = str(error)
    assert "lossy=bf16 is not given" in refused, refused
    return [(tensor, torch.full((8,), float(size * size)))]


def is_shared(tensor: Tensor) -> bool:
    """Return whether a tensor lies in memory that other processes may map."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, rights = line.split()[:2]
        low, high = (int(end, 16) for end in span.split("-"))
        if low <= tensor.data_ptr() < high:
            return rights[3] == "s"
    raise AssertionError("it lies nowhere")


@alone
def allocated(group: Any) -> Any:
    cpu, size, rank = torch.device("cpu"), dist.get_world_size(), dist.get_rank()
    backend: Any = dist.distributed_c10d._get_default_group()._get_backend(cpu)
    assert backend.supports_tensor_alloc(cpu) is True
    assert backend.supports_tensor_alloc(torch.device("cuda", 0)) is False
    tensor = backend.allocate_tensor(1000, dtype=torch.bfloat16, device=cpu)
    assert is_shared(tensor) and not is_shared(torch.empty(1000))
    zeros, place = tensor.clone(), tensor.data_ptr()
    tensor.fill_(rank + 1)
    dist.all_reduce(tensor)
    work: Any = dist.all_reduce(backend.allocate_tensor(300_000, dtype=torch.float32, device=cpu), async_op=True)
    work.wait()
    total = tensor.clone()
    del tensor, work
    gc.collect()
    again = backend.allocate_tensor(1000, dtype=torch.bfloat16, device=cpu)
    try:
        backend.allocate_tensor(1, dtype=torch.float32, device=torch.device("cuda", 0))
        told = ""
    except NotImplementedError as error:
        told = str(error)
    assert "use torch.empty" in told, told
    try:
        backend.allocate_tensor(-1, dtype=torch.float32, device=cpu)
        told = ""
    except ValueError as error:
        told = str(error)
    assert "the size is -1" in told, told
    none = backend.allocate_tensor(0, dtype=torch.float32, device=cpu)
    wanted = torch.full((1000,), size * (size + 1) / 2, dtype=torch.bfloat16)
    return [(zeros, torch.zeros_like(wanted)), (total, wanted), (again, zeros), (again.data_ptr(), place), (len(none), 0)]


def same(left: Any, right: Any) -> bool:
    if isinstance(left, Tensor):
        return torch.equal(left, right)
    if isinstance(left, list):
        return len(left) == len(right) and all(same(*pair) for pair in zip(left, right, strict=True))
    return bool(left == right)


def every(rank: int) -> dict[str, str]:
    """Return what is wrong in each case: nothing, if all is well."""
    gloo = dist.new_group(backend="gloo")
    outcomes = {}
    for name in [*CASES, *ALONE]:
        print(name, flush=True)
        try:
            if name in ALONE:
                pairs = ALONE[name](None)
                wrong = [f"{got} instead of {wanted}" for got, wanted in pairs if not same(got, wanted)]
            else:
                got, wanted = CASES[name](None), CASES[name](gloo)
                wrong = [] if same(got, wanted) else [f"{got} instead of {wanted}"]
            outcomes[name] = "; ".join(wrong)
        except Exception:
            outcomes[name] = traceback.format_exc()
    return outcomes
