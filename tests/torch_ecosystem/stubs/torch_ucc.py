"""What torch_ucc's scripts import: the backend "ucc" is Gloo, unless roundelay has taken that name."""

from __future__ import annotations

import os
from typing import Any

import torch.distributed as dist


def _gloo(options: Any, _: Any = None) -> Any:
    from torch._C._distributed_c10d import ProcessGroupGloo

    return ProcessGroupGloo(options.store, options.group_rank, options.group_size, timeout=options.timeout)


if "ucc" not in os.environ.get("ROUNDELAY_REPLACE", ""):
    dist.Backend.register_backend("ucc", _gloo, extended_api=True, devices=["cpu"])
