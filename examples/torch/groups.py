"""Groups of ranks: split from another, made anew, in meshes, and with objects.

torchrun --nproc-per-node 4 examples/torch/groups.py roundelay
"""

from __future__ import annotations

from typing import cast

import torch
import torch.distributed as dist
from job import Losses, main
from torch.distributed.device_mesh import init_device_mesh


def _sum(value: float, group: dist.ProcessGroup | None) -> float:
    tensor = torch.full((3,), value)
    dist.all_reduce(tensor, group=group)
    return tensor[0].item()


def _halves() -> list[list[int]]:
    ranks = list(range(dist.get_world_size()))
    return [ranks[::2], ranks[1::2]]


def split() -> list[float]:
    """Split the ranks in two, every other rank to one part."""
    part = dist.split_group(None, _halves())
    assert part is not None
    rank = float(dist.get_rank())
    results = [float(dist.get_rank(part)), float(dist.get_world_size(part)), _sum(rank + 1, part)]
    dist.destroy_process_group(part)
    return results


def subgroups() -> list[float]:
    """Make both parts as groups, each on all ranks, and use the own one beside the whole."""
    part, _ = dist.new_subgroups_by_enumeration(_halves())
    works = [dist.all_reduce(torch.ones(1000), group=group, async_op=True) for group in (part, None, part)]
    for work in works:
        if work is not None:
            work.wait()
    return [_sum(1.0, part), _sum(float(dist.get_rank()), None)]


def mesh() -> list[float]:
    """Sum along each dimension of a mesh, and over the ranks of both as one."""
    ranks = dist.get_world_size()
    rows = 2 if ranks % 2 == 0 else 1
    grid = init_device_mesh("cpu", (rows, ranks // rows), mesh_dim_names=("row", "column"))
    value = float(dist.get_rank() + 1)
    flat = grid["row", "column"]._flatten("all")
    return [_sum(value, group) for group in (grid.get_group("row"), grid.get_group("column"), flat.get_group())]


def objects() -> list[float]:
    """Pass Python objects of different sizes in a part of the ranks."""
    part, _ = dist.new_subgroups_by_enumeration(_halves())
    members, rank = dist.get_world_size(part), dist.get_rank()
    gathered: list[object] = [None] * members
    dist.all_gather_object(gathered, {"rank": rank, "text": "x" * rank}, part)
    shared: list[object] = [[rank, "from the first of its part"]]
    dist.broadcast_object_list(shared, group=part, group_src=0)
    ranks = [cast("dict[str, int]", each)["rank"] for each in gathered]
    return [float(value) for value in (*ranks, cast("list[int]", shared[0])[0])]


def run() -> Losses:
    """Return ranks, sizes and sums."""
    # Before 2.15 torch splits only groups that are bound to a GPU.
    splits = [split] if torch.__version__ >= "2.15" else []
    return {each.__name__: each() for each in (*splits, subgroups, mesh, objects)}


if __name__ == "__main__":
    main(run)
