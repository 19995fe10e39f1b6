"""Registration of backends in Python."""

from __future__ import annotations

import sys

import torch.distributed as dist

from ..errors import UsageError
from ._python_backend import PythonBackend
from ._python_comm import wrapper
from ._python_group import add_group, has_group
from ._registry import add_wrapper


def register_backend(name: str, kind: type[PythonBackend]) -> None:
    """Register a class under a name of its own, in this process.

    From now on ``new_comm(name, …)`` makes communicators of it, and ``torch.distributed.init_process_group(name)``
    process groups; ``torchcomms.new_comm``, too, where torchcomms was imported. A later class of the same name takes
    its place in communicators that are made then.

    Raises ``UsageError`` if the class is none of ``PythonBackend``, or if another backend has the name.
    """
    if not (isinstance(kind, type) and issubclass(kind, PythonBackend)):
        raise UsageError(f"{kind!r} is no subclass of roundelay.torchcomms.PythonBackend: derive the backend from that")
    taken = ["roundelay", *getattr(dist.Backend, "backend_list", [])] if dist.is_available() else ["roundelay"]
    if not name.isidentifier() or name != name.lower():
        raise UsageError(f"the name {name!r} is none of a backend: use small letters, digits and _")
    if name in taken and not has_group(name):
        raise UsageError(f"there is a backend {name} already: take a name that is none of {', '.join(taken)}")
    kind.backend_name = name
    add_wrapper(name, wrapper(kind))
    add_group(name, kind)
    # A program may have put this package in its place.
    if "torchcomms" in sys.modules and sys.modules["torchcomms"] is not sys.modules[__package__]:
        from ._trampoline import register_as

        register_as(name)
