"""The face for torch 2.14 and later: a ``Backend`` in Python."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from torch._C._distributed_c10d import Backend, ErrorType

from ._barrier import Monitor
from ._calls import Calls
from ._ending import alive
from ._errors import missing
from ._flight import describe
from ._holder import forward_queries
from ._join import join
from ._operations import Operations
from ._options import Options, hints_of

if TYPE_CHECKING:
    from .._native import Communicator


class RoundelayBackend(Operations, Backend):
    """One rank's part in a group of ranks.

    ``calls`` are those of a communicator that makes calls by itself too, which the group then shares with it.
    """

    part_class: type[RoundelayBackend] | None = None
    """The class of the backends of parts, where it is another one."""

    def __init__(
        self,
        store: Any,
        rank: int,
        size: int,
        comm: Communicator,
        options: Any,
        name: str,
        calls: Calls | None = None,
    ) -> None:
        Backend.__init__(self, rank, size)
        self._store = store
        self._options = options
        self._comm = comm
        self._calls = calls or Calls(comm, options._timeout.total_seconds(), name, options)
        self._monitor = Monitor(store, rank, size)
        alive[id(self)] = self

    # What it is.

    def getBackendName(self) -> str:
        """Return ``roundelay``."""
        return "roundelay"

    @property
    def options(self) -> Any:
        """The options of the group."""
        return self._options

    @property
    def supports_splitting(self) -> bool:
        """True: ``split_group`` makes groups of parts."""
        return True

    @property
    def supports_coalescing(self) -> bool:
        """True: ``batch_isend_irecv`` is one batch."""
        return True

    @property
    def supports_shrinking(self) -> bool:
        """False."""
        return False

    @property
    def supports_reconfigure(self) -> bool:
        """False: rank and size of a backend in Python cannot change; those of the one in C++ can."""
        return False

    @property
    def supports_window(self) -> bool:
        """False: the backend in C++ has windows."""
        return False

    # Barriers, groups, the end.

    def monitored_barrier(self, opts: Any, wait_all_ranks: bool = False) -> None:
        """Wait for all ranks; name those that did not come."""
        self._calls.messages.start()
        seconds = opts.timeout.total_seconds()
        unset = seconds < 0
        self._monitor.wait(self._options._timeout.total_seconds() if unset else seconds, wait_all_ranks)

    def split(self, store: Any, ranks: list[int], opts: Any) -> RoundelayBackend | None:
        """Make the backend of a part of the ranks; None on the others."""
        if self.rank() not in ranks:
            return None
        timeout = self._options._timeout if opts is None else opts._timeout
        hints = hints_of(opts) or hints_of(self._options)
        parent = list(self._options.global_ranks_in_group)
        made = Options(dict(hints), timeout)
        made.global_ranks_in_group = [parent[rank] for rank in ranks] if len(parent) == self.size() else list(ranks)
        if opts is not None:
            made.group_name = opts.group_name
        rank = ranks.index(self.rank())
        comm = join(store, rank, len(ranks), timeout, hints)
        return (self.part_class or type(self))(store, rank, len(ranks), comm, made, self._calls.name)

    def perform_nocolor_split(self, device: Any) -> None:
        """Do nothing: ranks outside a part are not needed to make it."""

    def eager_connect_single_device(self, device: Any) -> None:
        """Do nothing: the ranks are connected when the group is made."""

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the longest time without progress of operations that follow."""
        self._options._timeout = timeout
        self._calls.set_timeout(timeout.total_seconds())

    def _set_default_timeout(self, timeout: timedelta) -> None:
        self.set_timeout(timeout)

    def abort(self) -> None:
        """End the group on all ranks at once: operations that wait, or follow, raise an error."""
        if self._comm.is_here:  # In a forked child nothing is aborted, and the call below says so.
            self._calls.aborted()
        self._calls.abort("abort() was called on the process group")

    def shutdown(self) -> None:
        """End this rank's part, after what was started."""
        if alive.pop(id(self), None) is None:
            return
        self._options.group_desc = describe(self._options)
        batch = self._calls.messages.start()
        if batch is not None and batch.error is not None:
            raise batch.error
        self._calls.shutdown()

    def get_error(self) -> Any:
        """Return whether the group was aborted."""
        return ErrorType.REMOTE_ERROR if self._comm.aborted else ErrorType.SUCCESS

    def _get_sequence_number_for_group(self) -> int:
        return self._calls.record.count

    def _set_sequence_number_for_group(self) -> None:
        pass

    def _wait_for_pending_works(self) -> None:
        self._calls.messages.start()
        self._calls.record.wait()
        self._calls.messages_record.wait()

    def _enable_collectives_timing(self) -> None:
        pass

    def registerAbortHook(self, hook_id: int, hook: Callable[[], None]) -> None:
        """Have a function called before an abort, and when an operation has failed."""
        self._calls.on_abort[hook_id] = hook

    def unregisterAbortHook(self, hook_id: int) -> None:
        """Forget the function of that number."""
        self._calls.on_abort.pop(hook_id, None)

    # Memory.

    def suspend(self) -> None:
        """Give the memory of the group back until ``resume``, on the hosts and on the GPUs. All ranks call it."""
        self._wait_for_pending_works()
        self._calls.suspend()

    def resume(self) -> None:
        """Resume the group: all ranks call it."""
        self._calls.resume()

    def memory_stats(self) -> dict[str, int]:
        """Return the memory that this rank holds, in bytes by kind, and ``suspended``: 1 or 0."""
        return self._calls.memory_stats()

    # What is not there.

    def merge(self, *_: Any) -> NoReturn:
        """Raise ``NotImplementedError``."""
        missing("merge_remote_group", "make a new group")

    def shrink(self, *_: Any) -> NoReturn:
        """Raise ``NotImplementedError``."""
        missing("shrink_group", "abort the group, and make a new one of the ranks that are left")

    def reconfigure(self, opts: Any) -> NoReturn:
        """Raise ``NotImplementedError``."""
        missing("reconfigure", "abort the group, and make a new one")

    def get_reconfigure_handle(self) -> NoReturn:
        """Raise ``NotImplementedError``."""
        missing("reconfigure", "abort the group, and make a new one")

    def new_window(self, tensor: Any = None) -> NoReturn:
        """Raise ``NotImplementedError``."""
        missing("windows in Python", "ask for the backend in C++: Options(compiled=True), or use send and recv")

    def _start_time_estimate(self) -> NoReturn:
        missing("time estimates", "use `python -m roundelay explain`")

    def _end_time_estimate(self) -> NoReturn:
        missing("time estimates", "use `python -m roundelay explain`")


def create(
    opts: Any, group_options: Any, name: str, kind: type[RoundelayBackend] | None = None
) -> RoundelayBackend | None:
    """Make the backend of a group, as torch asks for it by a name; of another class than this one's if one is given."""
    ranks = list(opts.global_ranks_in_group)
    if opts.enable_reconfigure:
        missing("reconfigure in Python", "ask for the backend in C++: Options(compiled=True) or ROUNDELAY_TORCH_COMPILED=1")
    hints = hints_of(group_options)
    options = Options(dict(hints), opts.timeout)
    options.global_ranks_in_group = ranks or list(range(opts.group_size))
    options.group_name = opts.group_id
    comm = join(opts.store, opts.group_rank, opts.group_size, opts.timeout, hints)
    forward_queries()
    return (kind or RoundelayBackend)(opts.store, opts.group_rank, opts.group_size, comm, options, name)
