"""The entry point of ``torch.comms.backend``: has a ``torch.comms`` of torch itself find the backend in Python.

No released torch has ``torch.comms`` (2.15 and before): the name of the group is that of a change to PyTorch that was
proposed and closed (pytorch #185565). There a backend in C++ would need headers that no torch has, so the one by the
interface for backends in Python is registered.
"""

from __future__ import annotations

import importlib

try:
    _interface = importlib.import_module("torch.comms")
    from ._trampoline import register

    register(_interface, "call torch.distributed.init_process_group('roundelay')")
except (ImportError, AttributeError) as error:
    raise ImportError(
        f"roundelay: this torch has no torch.comms that takes backends in Python ({error}): call "
        "torch.distributed.init_process_group('roundelay'), or use `import roundelay.torchcomms as torchcomms`"
    ) from None
