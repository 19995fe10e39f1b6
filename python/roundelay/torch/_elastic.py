"""A communicator that lives on while the group that is made of it changes."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from .._ending import watch
from ..errors import Error, StartError
from ..store import wait_for
from . import NAME
from ._ending import alive
from ._errors import AbortedError, face
from ._register import supports_backends

if TYPE_CHECKING:
    from .._native import Communicator

_KEY = "roundelay/handle/{}"
"""The key of a rank's handle, in the store of one attempt."""


class Elastic:
    """One rank's communicator, of which a group is made for each set of ranks.

    Ranks, and their number, are others each time; the communicator is one, from the first :meth:`configure` until
    :meth:`shutdown`. Torch's groups cannot change their number of ranks, so there is a group for each generation.
    """

    def __init__(self, hints: list[tuple[str, str]], name: str = NAME) -> None:
        self._hints = hints
        self._name = name
        self._comm: Communicator | None = None
        self._backend: Any = None

    def configure(
        self, store: Any, rank: int, size: int, timeout: timedelta, ranks: list[int] | None = None, group: Any = ""
    ) -> Any:
        """Go on as rank ``rank`` of ``size``, which all call with a store that no attempt has used; return the group.

        The ranks pass their handles by the store, abort what they have left of the group before, and make a generation
        of themselves alone, within ``timeout``, which is then that of the operations too. ``ranks`` are
        the numbers of the group's ranks in the job, and ``group`` its name, for the flight recorder. Raises
        ``StartError`` if a rank does not come, and what ``reconfigure`` raises; another attempt may follow then.
        """
        from .._native import Communicator

        until = time.monotonic() + timeout.total_seconds()
        self._retire()
        try:
            if self._comm is None:
                self._comm = watch(Communicator.alone(self._hints))
            comm = self._comm
            handles = _exchanged(store, rank, size, comm.handle(), timeout)
            # Not before: all are here now, so none of them is in a call that would be ended.
            comm.abort("the process group is configured anew")
            comm.reconfigure("", handles, True, max(until - time.monotonic(), 0.001))
            comm.set_timeout(max(timeout.total_seconds(), 0.001))
        except Error as error:
            raise face(error, timeout.total_seconds()) from error.__cause__
        self._backend, made = _group(comm, store, timeout, self._name, ranks or list(range(size)), group)
        return made

    def abort(self, why: str) -> None:
        """End what goes on, on all ranks; :meth:`configure` goes on."""
        if self._comm is not None:
            self._comm.abort(why)

    def errored(self) -> BaseException | None:
        """Return an error if the ranks have to be configured anew: one of them has failed, or has called ``abort``."""
        if self._comm is None or not self._comm.aborted:
            return None
        return AbortedError(
            "roundelay: The group was aborted: a rank has failed or has called abort(); configure the group anew",
            code="RL0705",
            rank=self._comm.rank,
        )

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the longest time without progress of the operations that follow."""
        if self._backend is not None:
            self._backend._set_default_timeout(timeout)

    def shutdown(self) -> None:
        """End this rank's part, after what was started; another :meth:`configure` begins with a new communicator."""
        comm, self._comm = self._comm, None
        self._retire()
        if comm is not None:
            comm.shutdown()

    def _retire(self) -> None:
        """Forget the group before: what is left to shut down is the communicator that it had."""
        backend, self._backend = self._backend, None
        if backend is not None:
            alive.pop(id(backend), None)


def _exchanged(store: Any, rank: int, size: int, handle: str, timeout: timedelta) -> list[str]:
    """Return the handles of all ranks, in their order."""
    keys = [_KEY.format(each) for each in range(size)]
    store.set(keys[rank], handle)
    try:
        wait_for(store, keys, timeout)
    except RuntimeError as error:
        late = [each for each, key in enumerate(keys) if not store.check([key])]
        if not late:  # It is the store that has failed.
            raise
        raise StartError(
            f"rank {rank} has waited {timeout.total_seconds():g} s for the handle of rank "
            f"{', '.join(map(str, late))}: see whether it runs, and configures the same group",
            code="RL0709",
            rank=rank,
            peer=late[0],
        ) from error
    found = store.multi_get(keys) if store.has_extended_api() else [store.get(key) for key in keys]
    return [bytes(each).decode() for each in found]


def _group(
    comm: Communicator, store: Any, timeout: timedelta, name: str, ranks: list[int], group: Any
) -> tuple[Any, Any]:
    """Return the backend of a generation, and the group of torch that has it."""
    if not supports_backends():
        from ._group import RoundelayGroup

        whole = RoundelayGroup(store, comm, timeout, name)
        return whole, whole
    from ._backend import RoundelayBackend
    from ._options import Options

    options = Options(timeout=timeout)
    options.global_ranks_in_group = ranks
    options.group_name = group
    backend = RoundelayBackend(store, comm.rank, comm.size, comm, options, name)
    made: Any = dist.ProcessGroup(store, comm.rank, comm.size)
    kind = dist.ProcessGroup.BackendType.CUSTOM
    made._set_default_backend(kind)
    for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
        made._register_backend(torch.device(device), kind, backend)
    return backend, made
