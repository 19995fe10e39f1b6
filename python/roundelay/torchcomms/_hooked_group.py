"""A process group that is a communicator, for torch 2.11 to 2.13."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..torch import NAME
from ..torch._group import RoundelayGroup
from ._group_hooks import add_hooks
from ._hooked import HookedComm
from ._python_group import PythonOperations

if TYPE_CHECKING:
    from ..torch._calls import Calls
    from ._comm import TorchComm
    from ._python_comm import PythonComm


class UnhookedGroup(HookedComm, RoundelayGroup):  # type: ignore[misc]
    """A communicator as a process group of ``torch.distributed``, with its connections."""

    def __init__(self, comm: TorchComm, store: Any, calls: Calls) -> None:
        super().__init__(store, comm._native, comm._timeout, NAME, calls)
        self.hooked = comm


class CommGroup(UnhookedGroup):
    """A communicator as a process group of ``torch.distributed``, with its connections and its hooks."""


class PythonCommGroup(UnhookedGroup, PythonOperations):  # type: ignore[misc]
    """A communicator of a backend in Python as a process group, with what its class overrides."""

    def __init__(self, comm: PythonComm, store: Any, calls: Calls) -> None:
        super().__init__(comm, store, calls)
        self.python_backend, self._own = comm._backend, comm._own


add_hooks(CommGroup)
add_hooks(PythonCommGroup)
