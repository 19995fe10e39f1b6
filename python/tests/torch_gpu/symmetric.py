"""torch's symmetric memory over roundelay alone, and an operation in Triton over it.

torchrun --nproc-per-node 2 python/tests/torch_gpu/symmetric.py [--device cpu]

There is no other backend: `rendezvous` takes the default group, a part of it, and a communicator. Each is checked by
what peers have written, and torch's own operations on it by sums of the ranks' tensors. Then a backend in Python
overrides `all_reduce` by a Triton kernel that reads the peers' memory, and all operations are checked against what a
rank computes by itself. On CPU, where torch has no symmetric memory, the kernel runs in Triton's interpreter on a
window of roundelay. Prints a line a case, and ends with 1 if one is wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
OPTIONS = parser.parse_args()
if OPTIONS.device == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"
os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.distributed import _symmetric_memory as symmetric  # noqa: E402

import roundelay.torch  # noqa: E402
import roundelay.torchcomms as torchcomms  # noqa: E402

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
DEVICE = torch.device(OPTIONS.device)
if OPTIONS.device == "cuda":
    DEVICE = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
COUNT = 1 << 16
"""Elements of the memory that ranks share."""
PROBLEMS: list[str] = []


def pattern(rank: int, count: int = COUNT) -> Tensor:
    """Return a rank's numbers, which all ranks know: whole ones, so that sums have no order."""
    return torch.arange(count, device=DEVICE, dtype=torch.float32) % 1000 + 1000 * rank


def case(name: str, body: Callable[[], str]) -> None:
    """Run a case, and print what it says is wrong."""
    try:
        wrong = body()
    except Exception:
        wrong = traceback.format_exc()
    print(f"rank {RANK}, {name}: {wrong or 'right'}", flush=True)
    if wrong:
        PROBLEMS.append(name)


def rendezvous(group: Any, peers: list[int]) -> str:
    """Map memory over a group; each rank reads what the others have written."""
    shared = symmetric.empty(COUNT, device=DEVICE)
    shared.fill_(-1)
    handle = symmetric.rendezvous(shared, group)
    shared.copy_(pattern(RANK))
    handle.barrier(0)
    for place, peer in enumerate(peers):
        if not torch.equal(handle.get_buffer(place, (COUNT,), torch.float32), pattern(peer)):
            return f"the memory of rank {peer} has other numbers"
    handle.barrier(0)
    expected = sum(pattern(peer) for peer in peers)
    name = getattr(group, "group_name", group)
    if not torch.equal(torch.ops.symm_mem.one_shot_all_reduce(shared, "sum", name), expected):
        return "one_shot_all_reduce has another sum"
    torch.ops.symm_mem.two_shot_all_reduce_(shared, "sum", name)
    return "" if torch.equal(shared, expected) else "two_shot_all_reduce_ has another sum"


def signals(group: Any) -> str:
    """Pass a token from each rank to the next one by signals."""
    shared = symmetric.empty(64, device=DEVICE)
    handle = symmetric.rendezvous(shared, group)
    shared.zero_()
    handle.barrier(0)
    handle.get_buffer((RANK + 1) % SIZE, (64,), torch.float32).fill_(RANK + 1.0)
    handle.put_signal((RANK + 1) % SIZE, 0)
    handle.wait_signal((RANK - 1) % SIZE, 0)
    found = shared.unique().tolist()
    return "" if found == [(RANK - 1) % SIZE + 1.0] else f"the token is {found}"


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def add_peers(  # type: ignore[no-untyped-def]
    addresses, output, count, SIZE: tl.constexpr, BLOCK: tl.constexpr
):
    """Add the tensors of all ranks in their order, so that all have the same bits."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    total = tl.zeros((BLOCK,), tl.float32)
    for peer in tl.static_range(SIZE):
        start = tl.load(addresses + peer).to(tl.pointer_type(tl.float32))
        total += tl.load(start + at, mask=inside, other=0.0)
    tl.store(output + at, total, mask=inside)


class TritonSums(torchcomms.PythonBackend):
    """Sums of 32-bit numbers by a kernel that reads the peers' memory; all else is roundelay's."""

    def init(self, device: torch.device, name: str, options: Any) -> None:
        own = self.communicator
        self.calls = 0
        if device.type == "cuda":
            self.shared, handle = self.symmetric_memory(COUNT, torch.float32)
            self.meet: Callable[[], Any] = lambda: handle.barrier(0)
            addresses = list(handle.buffer_ptrs)
        else:
            self.shared = own.allocate_tensor(COUNT, dtype=torch.float32)
            self.window = own.new_window(self.shared)
            self.meet = lambda: own.barrier(False)
            peers = [self.window.map_remote_tensor(peer) for peer in range(own.get_size())]
            addresses = [peer.data_ptr() for peer in peers]
        self.addresses = torch.tensor(addresses, dtype=torch.int64, device=device)

    def all_reduce(self, tensor: Tensor, op: Any, async_op: bool) -> Any:
        count = tensor.numel()
        is_sum = op.type == torchcomms.RedOpType.SUM
        if tensor.dtype != torch.float32 or not is_sum or not 0 < count <= COUNT or not tensor.is_contiguous():
            return super().all_reduce(tensor, op, async_op)
        self.calls += 1
        self.shared[:count].copy_(tensor.flatten())
        self.meet()
        grid = (triton.cdiv(count, 1024),)
        add_peers[grid](self.addresses, tensor, count, SIZE=self.get_size(), BLOCK=1024)
        self.meet()  # Until all have read.
        return None


def overridden(store: Any) -> str:
    """Check all operations of the backend, and that sums of one kind went through the kernel."""
    torchcomms.register_backend("triton_sums", TritonSums)
    comm = torchcomms.new_comm("triton_sums", DEVICE, name="triton_sums", store=store)
    checked = torchcomms.check_operations(comm)
    own = comm.get_backend_impl()
    before = own.calls
    tensor = pattern(RANK)
    comm.all_reduce(tensor, torchcomms.ReduceOp.SUM, False)
    wrong = "" if torch.equal(tensor, sum(pattern(rank) for rank in range(SIZE))) else "the sum is another one"
    if before == 0 or own.calls != before + 1:
        wrong = f"the kernel was called {before} and {own.calls} times"
    print(f"rank {RANK}: {checked} results checked, {own.calls} sums by the kernel", flush=True)
    comm.finalize()
    return wrong


def main() -> int:
    if DEVICE.type == "cuda":
        torch.cuda.set_device(DEVICE)
    roundelay.torch.register()
    dist.init_process_group("roundelay")
    whole = dist.group.WORLD
    assert dist.get_backend() == "roundelay"
    if DEVICE.type == "cuda":
        case("rendezvous of the default group", lambda: rendezvous(whole, list(range(SIZE))))
        backwards = dist.new_group(list(range(SIZE)), backend="roundelay")
        case("rendezvous of another group", lambda: rendezvous(backwards.group_name, list(range(SIZE))))
        case("signals", lambda: signals(whole))
    store = dist.PrefixStore("triton", dist.distributed_c10d._get_default_store())
    case("all_reduce in Triton", lambda: overridden(store))
    dist.destroy_process_group()
    return bool(PROBLEMS)


if __name__ == "__main__":
    sys.exit(main())
