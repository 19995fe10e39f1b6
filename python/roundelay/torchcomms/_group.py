"""Process groups of ``torch.distributed`` that are communicators.

DeviceMesh, FSDP, tensor parallel and pipelines take process groups. One that is made here has the connections, the
streams and the hooks of its communicator, and is known to ``torch.distributed`` by a name until the communicator ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from ..errors import UsageError
from ..torch import register
from ..torch._ending import alive
from ..torch._options import Options
from ..torch._register import supports_backends

if TYPE_CHECKING:
    from ._comm import TorchComm

c10d: Any = distributed_c10d
"""The tables of torch, which are not for programs."""


def process_group(comm: TorchComm, name: str, ranks: Mapping[int, int] | None = None) -> dist.ProcessGroup:
    """Return a process group that is a communicator, known to ``torch.distributed`` by a name.

    ``ranks`` has the group's rank for each rank of the default group; without it they are the same. A second call with
    the same name and ranks returns the same group. The group is forgotten when the communicator is finalized or
    reconfigured; ``destroy_process_group`` finalizes the communicator.

    Raises ``UsageError`` if a group has that name, or if the communicator has ended.
    """
    comm._live("process_group")
    mapping = dict(ranks) if ranks is not None else {rank: rank for rank in range(comm.get_size())}
    for entry in comm._groups:
        if entry.name == name and c10d._world.pg_group_ranks.get(entry.group) == mapping:
            known: dist.ProcessGroup = entry.group
            return known
    if name in c10d._world.pg_names.values():
        raise UsageError(
            f"torch.distributed has a process group of the name {name!r}: give another one, or finalize the "
            "communicator that has it"
        )
    register()
    store = comm._store if comm._store is not None else c10d.HashStore()
    group, backend = _made(comm, name, store, list(mapping))
    _enter(group, name, comm.get_backend(), store, mapping)
    comm._groups.append(CommGroupEntry(group, name, backend))
    found: dist.ProcessGroup = group
    return found


class CommGroupEntry:
    """A process group in the tables of torch."""

    def __init__(self, group: Any, name: str, backend: Any) -> None:
        self.group = group
        self.name = name
        self.backend = backend

    def release(self) -> None:
        """Leave the end of the group to its communicator."""
        alive.pop(id(self.backend), None)

    def forget(self) -> None:
        """Take the group out of the tables; it is the default group no more."""
        self.release()
        world = c10d._world
        if self.group not in world.pg_names:  # Torch has destroyed it.
            return
        for table in (world.pg_map, world.pg_names, world.pg_group_ranks, world.pg_backend_config):
            table.pop(self.group, None)
        world.pg_to_tag.pop(self.group, None)
        for groups in world.tags_to_pg.values():
            while self.group in groups:
                groups.remove(self.group)
        c10d._unregister_process_group(self.name)
        if c10d.GroupMember.WORLD is self.group:
            c10d._update_default_pg(None)


def _made(comm: TorchComm, name: str, store: Any, ranks: list[int]) -> tuple[Any, Any]:
    options: Any = Options({}, comm._timeout)
    options.hints = []  # The communicator has its hints.
    options.group_name = name
    options.global_ranks_in_group = ranks
    calls = comm._engine.calls
    calls.record_as(options)
    calls.on_abort[id(comm)] = comm._tell_abort
    from ._python_comm import PythonComm

    if not supports_backends():
        from ._hooked_group import CommGroup, PythonCommGroup

        made: Any
        made = PythonCommGroup(comm, store, calls) if isinstance(comm, PythonComm) else CommGroup(comm, store, calls)
        made.setGroupName(name)
        return made, made
    from ._hooked_backend import CommBackend, PythonCommBackend

    backend: Any
    if isinstance(comm, PythonComm):
        backend = PythonCommBackend(comm, store, options, calls)
    else:
        backend = CommBackend(comm, store, options, calls)
    group: Any = dist.ProcessGroup(store, comm.get_rank(), comm.get_size())
    kind = dist.ProcessGroup.BackendType.CUSTOM
    for device in sorted({"cpu", comm.get_device().type}):
        group._register_backend(torch.device(device), kind, backend)
    group._set_default_backend(kind)
    group._set_group_name(name)
    group._set_group_desc(f"torchcomms:{comm.get_name()}")
    return group, backend


def _enter(group: Any, name: str, backend: str, store: Any, mapping: dict[int, int]) -> None:
    """Enter a group into the tables in which torch looks for groups."""
    world = c10d._world
    world.pg_map[group] = (backend, store)
    world.pg_names[group] = name
    world.pg_backend_config[group] = str(c10d.BackendConfig(dist.Backend(backend)))
    world.pg_group_ranks[group] = mapping
    c10d._register_process_group(name, group)
    tag = f"ptd:{name}"
    world.pg_to_tag[group] = tag
    for key in (tag, ""):
        world.tags_to_pg.setdefault(key, []).append(group)
