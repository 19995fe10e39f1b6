"""Slices of one tensor have the bits of the whole under the hint `deterministic=batch_invariant`.

torchrun --nproc-per-node 3 python/tests/torch_gpu/slices.py [--device cpu] [--slices 500] [--by group]

Every rank makes the tensors of all ranks, so that each knows the sum of an element: that of the ranks in ascending
order, rounded once. Slices of many lengths and offsets are summed by all_reduce, reduce and reduce_scatter in four
types, eagerly and in CUDA graphs, so that packets, slots and both algorithms of a collective take their turn.
reduce_scatter and then all_gather must be all_reduce. Without the hint some elements must differ, or the check could
find nothing; two ranks have one order only. Ranks may share a GPU. The hint is one of the process group, of `with
hints(…)`, or of the environment. Prints a line for each type and way, and ends with 1 if a bit differs.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

import roundelay.torch

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
parser.add_argument("--by", choices=("group", "with", "environment"), default="group")
parser.add_argument("--slices", type=int, default=500, help="slices of each type, eagerly")
OPTIONS = parser.parse_args()

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
DEVICE = torch.device(OPTIONS.device)
if OPTIONS.device == "cuda":
    DEVICE = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(DEVICE)
COUNT = 1 << 23
"""Elements of the tensor: beyond the largest slice for which the choice differs without the hint."""
HINT = {"deterministic": "batch_invariant"}
TYPES = {torch.float32: torch.int32, torch.float64: torch.int64, torch.float16: torch.int16, torch.bfloat16: torch.int16}
"""Types, and those that have their bits."""


def numbers(dtype: torch.dtype, rank: int) -> Tensor:
    """Return a rank's tensor: of very different magnitudes, so that every order of additions rounds differently."""
    generator = torch.Generator().manual_seed(rank + 1)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    whole = torch.rand(COUNT, generator=generator, dtype=wide) - 0.5
    powers = torch.randint(0, 8, (COUNT,), generator=generator)
    return (whole * 2.0**powers).to(dtype).to(DEVICE)


def ordered(tensors: list[Tensor]) -> Tensor:
    """Return the sum in ascending order of the ranks, rounded once."""
    wide = torch.float64 if tensors[0].dtype == torch.float64 else torch.float32
    total = tensors[0].to(wide)
    for tensor in tensors[1:]:
        total = total + tensor.to(wide)
    return total.to(tensors[0].dtype)


def differing(found: Tensor, wanted: Tensor) -> int:
    """Return how many elements have other bits."""
    kind = TYPES[found.dtype]
    return int((found.view(kind) != wanted.view(kind)).sum())


def lengths(dice: random.Random, count: int) -> list[tuple[int, int]]:
    """Return offsets and lengths: short ones, odd ones, and some of each power of two."""
    found = []
    for _ in range(count):
        most = 1 << dice.randint(0, 22)
        length = SIZE * dice.randint(1, max(most // SIZE, 1))
        found.append((dice.randint(0, COUNT - length), length))
    return found


def reduced(source: Tensor, wanted: Tensor, group: Any) -> int:
    """Sum one slice by all_reduce; return how many elements have other bits."""
    data = source.clone()
    dist.all_reduce(data, group=group)
    return differing(data, wanted)


def rooted(source: Tensor, wanted: Tensor, group: Any) -> int:
    """Sum one slice by reduce to each rank; return how many elements of this rank's sum have other bits."""
    wrong = 0
    for root in range(SIZE):
        data = source.clone()
        dist.reduce(data, root, group=group)
        wrong += differing(data, wanted) if root == RANK else 0
    return wrong


def scattered(source: Tensor, wanted: Tensor, group: Any) -> int:
    """Sum one slice by reduce_scatter and then all_gather; return how many elements have other bits."""
    shard = torch.full((source.numel() // SIZE,), 77.0, dtype=source.dtype, device=DEVICE)
    whole = torch.empty_like(source)
    dist.reduce_scatter_tensor(shard, source.clone(), group=group)
    dist.all_gather_into_tensor(whole, shard, group=group)
    return differing(whole, wanted)


WAYS: dict[str, Callable[[Tensor, Tensor, Any], int]] = {
    "all_reduce": reduced,
    "reduce": rooted,
    "reduce_scatter and all_gather": scattered,
}


def captured(mine: Tensor, total: Tensor, group: Any) -> int:
    """Sum slices in one CUDA graph, twice; return how many elements have other bits."""
    places = [(3 << power, 1 << power) for power in range(4, 22, 3)]
    data = [mine[offset : offset + length].clone() for offset, length in places]
    for tensor in data:
        dist.all_reduce(tensor, group=group)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for tensor in data:
            dist.all_reduce(tensor, group=group)
    wrong = 0
    for _ in range(2):
        for tensor, (offset, length) in zip(data, places, strict=True):
            tensor.copy_(mine[offset : offset + length])
        graph.replay()
        torch.cuda.synchronize()
        for tensor, (offset, length) in zip(data, places, strict=True):
            wrong += differing(tensor, total[offset : offset + length])
    return wrong


def say(text: str, is_right: bool, problems: list[str]) -> None:
    """Print a result, and keep it if it is wrong."""
    print(f"rank {RANK} of {SIZE}, {text}: {'right' if is_right else 'WRONG'}", flush=True)
    if not is_right:
        problems.append(text)


def check(dtype: torch.dtype, hinted: Any, free: Any, problems: list[str]) -> None:
    """Sum the slices of one type in all ways."""
    tensors = [numbers(dtype, rank) for rank in range(SIZE)]
    mine, total = tensors[RANK], ordered(tensors)
    del tensors
    places = lengths(random.Random(7), OPTIONS.slices)
    with roundelay.torch.hints(**(HINT if OPTIONS.by == "with" else {})):
        for turn, (name, way) in enumerate(WAYS.items()):
            own = places[turn :: len(WAYS)]
            wrong = sum(way(mine[at : at + size], total[at : at + size], hinted) for at, size in own)
            say(f"{dtype}, {name}, {len(own)} slices: {wrong} elements differ", wrong == 0, problems)
        if OPTIONS.device == "cuda":
            wrong = captured(mine, total, hinted)
            say(f"{dtype}, in a graph: {wrong} elements differ", wrong == 0, problems)
    if SIZE > 2 and OPTIONS.by != "environment":
        whole = COUNT - COUNT % SIZE
        wrong = sum(way(mine[:whole], total[:whole], free) for way in WAYS.values())
        say(f"{dtype}, without the hint: {wrong} elements differ", wrong > 0, problems)


def main() -> int:
    """Sum all slices; return the exit code."""
    if OPTIONS.by == "environment":
        os.environ["ROUNDELAY_HINTS"] = "deterministic=batch_invariant"
    dist.init_process_group("roundelay")
    options: Any = roundelay.torch.Options(HINT if OPTIONS.by == "group" else {})
    hinted, free = dist.new_group(pg_options=options), dist.new_group()
    problems: list[str] = []
    for dtype in TYPES:
        check(dtype, hinted, free, problems)
    dist.destroy_process_group()
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
