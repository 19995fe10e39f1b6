"""A pytest plugin: torchft's Gloo process group is roundelay's in its tests."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torchft.process_group as torchft
from torch._C._distributed_c10d import _DistributedBackendOptions as DistributedBackendOptions

from roundelay.torch import _register


class ProcessGroupRoundelay(torchft.ProcessGroupWrapper):
    """A reconfigurable group: a new one for each quorum."""

    _last: Any = None

    def _create_pg(self, store: Any, rank: int, world_size: int) -> Any:
        options = DistributedBackendOptions()
        options.store, options.group_rank, options.group_size = store, rank, world_size
        options.timeout = self._timeout
        options.group_id = f"torchft_{self._quorum_id}"
        options.global_ranks_in_group = list(range(world_size))
        made = _register._create(options)
        self._last = made
        if isinstance(made, dist.ProcessGroup):
            return made
        group = dist.ProcessGroup(store, rank, world_size)
        group._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)
        group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.CUSTOM, made)
        return group

    def abort(self, *args: Any, **kwargs: Any) -> None:
        if self._last is not None:
            self._last.abort()
        super().abort(*args, **kwargs)

    def getBackendName(self) -> str:
        return "torchft-gloo"


torchft.ProcessGroupGloo = ProcessGroupRoundelay
