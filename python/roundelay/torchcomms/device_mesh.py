"""Meshes of devices whose dimensions are communicators, for ``fully_shard``, tensor parallel and pipelines.

>>> comm = torchcomms.new_comm("roundelay", "cpu", name="global")
>>> mesh = init_device_mesh(mesh_dim_comms=(comm,), mesh_dim_names=("global",))
>>> fully_shard(model, mesh=mesh)

Each dimension is a process group of ``torch.distributed`` with the connections of its communicator: nothing is joined
a second time. ``docs/torchcomms.md`` has meshes of several dimensions.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.distributed.device_mesh import DeviceMesh

from ..errors import UsageError
from ._comm import TorchComm
from ._group import process_group

__all__ = ["init_device_mesh"]


def init_device_mesh(
    mesh_dim_comms: tuple[TorchComm, ...],
    mesh_dim_names: tuple[str, ...],
    _global_comm: TorchComm | None = None,
) -> DeviceMesh:
    """Make a mesh of which each dimension is a communicator, by the name of the dimension. All ranks call it.

    A mesh of several dimensions needs the communicator of all its ranks, ``_global_comm``, of which the others are
    parts: rank ``r`` has the coordinates of ``r`` in a row-major array of the dimensions' sizes. Where
    ``torch.distributed`` has no default group, that of all ranks is it from now on.

    Raises ``UsageError`` if the communicators do not make up a mesh, or if a name is that of another process group.
    """
    comms, names = tuple(mesh_dim_comms), tuple(mesh_dim_names)
    _check_names(comms, names, _global_comm)
    shape = [comm.get_size() for comm in comms]
    mesh = torch.arange(math.prod(shape), dtype=torch.int, device="cpu").view(shape)
    place = tuple(comm.get_rank() for comm in comms)
    rank = int(mesh[place].item())
    whole = comms[0] if _global_comm is None else _global_comm
    if (whole.get_rank(), whole.get_size()) != (rank, mesh.numel()):
        raise UsageError(
            f"the communicators of {names} make this rank {rank} of a mesh of {mesh.numel()} ranks, but it is rank "
            f"{whole.get_rank()} of {whole.get_size()} in {whole.get_name()!r}: split it by rows of a row-major array "
            f"of shape {tuple(shape)}"
        )
    rows = [_row(mesh, place, dim) for dim in range(len(comms))]
    for comm, name, row in zip(comms, names, rows):
        _check_row(comm, name, whole, row)
    _check_default(rank, mesh.numel())
    if _global_comm is not None:
        _become_default(process_group(_global_comm, _global_comm.get_name()))
    groups = []
    for comm, name, row in zip(comms, names, rows):
        groups.append(process_group(comm, name, {each: at for at, each in enumerate(row)}))
        _become_default(groups[0])
    kind = whole.get_device().type
    if len(groups) == 1:
        return DeviceMesh.from_group(groups[0], kind, mesh_dim_names=names)
    return DeviceMesh.from_group(groups, kind, mesh, mesh_dim_names=names)


def _check_names(comms: tuple[TorchComm, ...], names: tuple[str, ...], whole: TorchComm | None) -> None:
    if not comms or len(comms) != len(names):
        raise UsageError(f"a mesh of {len(comms)} communicators has {len(names)} names, {names}: give one a dimension")
    if whole is None and len(comms) != 1:
        raise UsageError(
            f"a mesh of the dimensions {names} needs the communicator of all its ranks: pass it as _global_comm"
        )
    listed = names if whole is None else (whole.get_name(), *names)
    if len(set(listed)) != len(listed):
        raise UsageError(f"two communicators of a mesh have one name: {listed}; give each its own")
    kinds = {comm.get_device().type for comm in comms} | {(whole or comms[0]).get_device().type}
    if len(kinds) != 1:
        raise UsageError(f"the communicators of a mesh are on {' and '.join(sorted(kinds))}: make all for one device")


def _row(mesh: torch.Tensor, place: tuple[int, ...], dim: int) -> list[int]:
    """Return the ranks of the mesh that differ from a place in one dimension only."""
    index: list[Any] = list(place)
    index[dim] = slice(None)
    row: list[int] = mesh[tuple(index)].tolist()
    return row


def _check_row(comm: TorchComm, name: str, whole: TorchComm, row: list[int]) -> None:
    """Raise ``UsageError`` if a part of the whole communicator has other ranks than the dimension of the mesh."""
    if comm is whole or comm._family is not whole._family:
        return
    ranks = whole.get_ranks()
    expected = [ranks[each] for each in row]
    if comm.get_ranks() != expected:
        raise UsageError(
            f"the dimension {name!r} of the mesh has the ranks {expected} here, but its communicator "
            f"{comm.get_name()!r} has {comm.get_ranks()}: split {whole.get_name()!r} by {row}, in this order"
        )


def _check_default(rank: int, size: int) -> None:
    if c10d.GroupMember.WORLD is None:
        return
    here = (dist.get_rank(), dist.get_world_size())
    if here != (rank, size):
        raise UsageError(
            f"the default group of torch.distributed has this process as rank {here[0]} of {here[1]}, and the mesh as "
            f"rank {rank} of {size}: make the mesh of all ranks of the default group, or destroy that group before"
        )


def _become_default(group: Any) -> None:
    if c10d.GroupMember.WORLD is None:
        c10d._update_default_pg(group)


def _create_torchcomm_process_group(
    comm: TorchComm,
    group_name: str,
    backend_str: str = "torchcomm",
    global_ranks_mapping: dict[int, int] | None = None,
) -> dist.ProcessGroup:
    """Return a process group that is a communicator, by torchcomms' name for it; ``backend_str`` has no effect."""
    return process_group(comm, group_name, global_ranks_mapping)


def _flatten_with_comm(
    mesh: DeviceMesh, mesh_dim_name: str, comm: TorchComm, global_ranks: list[int], layout: Any
) -> DeviceMesh:
    """Give a mesh a further dimension by name, which stands for several: a communicator of the ranks ``global_ranks``.

    ``layout`` is the layout of the dimensions together. Raises ``UsageError`` if the communicator has other ranks.
    """
    if len(global_ranks) != comm.get_size():
        raise UsageError(
            f"{mesh_dim_name!r} stands for the ranks {global_ranks}, and its communicator has {comm.get_size()}"
        )
    group = process_group(comm, mesh_dim_name, {rank: at for at, rank in enumerate(global_ranks)})
    root: Any = mesh._get_root_mesh()
    if hasattr(layout, "coalesce"):
        flat = layout.coalesce()
    else:
        from torch.distributed._mesh_layout import _MeshLayout

        flat = _MeshLayout([layout.collapse()])
    flattened: Any = DeviceMesh(
        root.device_type,
        mesh_dim_names=(mesh_dim_name,),
        _init_backend=False,
        _layout=flat,
        _rank_map=root._rank_map,
        _root_mesh=root,
    )
    flattened._dim_group_names = [group.group_name]
    if hasattr(root, "_pg_registry"):
        root._pg_registry[group.group_name] = group
    root._flatten_mapping[mesh_dim_name] = flattened
    found: DeviceMesh = flattened
    return found
