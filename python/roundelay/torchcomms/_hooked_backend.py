"""The backend of a process group that is a communicator, for torch 2.14 and later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..torch import NAME
from ..torch._backend import RoundelayBackend
from ..torch._holder import forward_queries
from ._group_hooks import add_hooks
from ._hooked import HookedComm
from ._python_group import PythonOperations, group_class

if TYPE_CHECKING:
    from ..torch._calls import Calls
    from ._comm import TorchComm
    from ._python_comm import PythonComm


class UnhookedBackend(HookedComm, RoundelayBackend):
    """A communicator as a backend of ``torch.distributed``, with its connections."""

    part_class = RoundelayBackend

    def __init__(self, comm: TorchComm, store: Any, options: Any, calls: Calls) -> None:
        forward_queries()
        super().__init__(store, comm.get_rank(), comm.get_size(), comm._native, options, NAME, calls)
        self.hooked = comm


class CommBackend(UnhookedBackend):
    """A communicator as a backend of ``torch.distributed``, with its connections and its hooks."""


class PythonCommBackend(UnhookedBackend, PythonOperations):
    """A communicator of a backend in Python as a backend of ``torch.distributed``, with what its class overrides."""

    def __init__(self, comm: PythonComm, store: Any, options: Any, calls: Calls) -> None:
        super().__init__(comm, store, options, calls)
        self.python_backend, self._own = comm._backend, comm._own
        self.part_class = group_class(type(comm._backend))


add_hooks(CommBackend)
add_hooks(PythonCommBackend)
