"""The calls that a group makes: where both faces meet the native part.

The native part keeps the tensors of what runs in the background. Where ``opts.asyncOp`` is False a call runs on the
caller's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.autograd.profiler as profiler
import torch.distributed as dist
from torch import Tensor

from .._ending import watch
from . import NAME
from . import _batches as batches
from . import _profile as profile
from ._errors import described, face
from ._flight import on_failure
from ._hints import ACTIVE, active
from ._memory import Finish
from ._record import Record
from ._work import Beside, Done, OnStream, Pending, ended

if TYPE_CHECKING:
    from .._native import Communicator
    from .._native import Work as NativeWork

NO_DEVICE = torch.device("cpu")


class Calls:
    """The calls that a group makes: the one place where the native part is called."""

    def __init__(self, comm: Communicator, timeout: float, name: str = NAME, options: Any = None) -> None:
        self.comm = comm
        self.name = name
        self.timeout = timeout
        self.rank = comm.rank
        self.size = comm.size
        self.messages = batches.Messages(comm)
        self.record = Record(options, comm.rank)
        self.messages_record = Record(options, comm.rank, is_message=True)
        self.on_abort: dict[int, Callable[[], None]] = {}
        self.coalesced: list[Any] | None = None
        self._devices: dict[int, Communicator] = {}
        self._beside: dict[int, Beside] = {}

    def record_as(self, options: Any) -> None:
        """Record the calls that follow as those of a group, by the name in its options."""
        self.record = Record(options, self.rank)
        self.messages_record = Record(options, self.rank, is_message=True)

    def on(self, device: torch.device) -> Communicator:
        """Return the communicator of a GPU; the first call is collective."""
        found = self._devices.get(device.index)
        if found is None:
            found = self._devices[device.index] = watch(self.comm.cuda(device.index))
        return found

    def all_comms(self) -> list[Communicator]:
        """Return the communicator of the hosts, and those of the GPUs."""
        return [self.comm, *self._devices.values()]

    def set_timeout(self, seconds: float) -> None:
        """Set the longest time without progress of calls that follow, on the hosts and on the GPUs."""
        self.timeout = seconds
        for comm in self.all_comms():
            comm.set_timeout(seconds)

    def suspend(self) -> None:
        """Give the memory of the communicators back, of the hosts and of the GPUs. Collective."""
        for comm in self.all_comms():
            comm.suspend(connections=False)

    def resume(self) -> None:
        """Make it again. Collective."""
        for comm in self.all_comms():
            comm.resume()

    def memory_stats(self) -> dict[str, int]:
        """Return the memory of the communicators together, in bytes by kind, and whether they are suspended."""
        total: dict[str, int] = {}
        for comm in self.all_comms():
            kinds, suspended = comm.memory_stats()
            for name, figure in kinds:
                total[name] = total.get(name, 0) + figure
            total["suspended"] = max(total.get("suspended", 0), int(suspended))
        return total

    def execute(
        self,
        opts: Any,
        result: Any,
        calls: Sequence[tuple[Any, ...]],
        finish: Sequence[Finish],
        keep: Any,
        device: torch.device = NO_DEVICE,
        inputs: Sequence[Tensor] | None = None,
    ) -> Any:
        """Make calls, one after the other: each is (collective, output, input[, operator, factor, root]).

        The profiler records those that have ``inputs``.
        """
        # Read in place: a function's call costs as much as all the rest of it.
        if profiler._is_profiler_enabled and inputs is not None:
            return profile.profiled(
                f"{self.name}:{calls[0][0] if calls else 'none'}",
                inputs,
                lambda: self.execute(opts, result, calls, finish, keep, device),
            )
        timeout = opts.timeout.total_seconds()
        limit = timeout if timeout > 0 else None
        record = self.record
        record.begin(calls, limit or self.timeout)
        if batches._open:
            self.messages.start()
            batches.flush_others(self.messages)
        hints = active() if ACTIVE else None
        try:
            # To compare devices takes a tenth of what their kinds' names take.
            if device != NO_DEVICE and device.type == "cuda":
                # The native part makes its GPU the current one of the thread.
                if torch._C._cuda_getDevice() != device.index:
                    with torch.cuda.device(device):
                        work = self._enqueue(opts, result, calls, finish, keep, device, limit, hints)
                else:
                    work = self._enqueue(opts, result, calls, finish, keep, device, limit, hints)
                record.open = 0
                return work
            if not opts.asyncOp:
                for call in calls:
                    self.comm.call(*_full(call), limit, hints)
                for due in finish:
                    due()
                record.open = 0
                return ended(result)
            started = [self.comm.call(*_full(call), limit, hints, None, keep) for call in calls]
        except RuntimeError as error:
            raise self.failed(face(error, limit or self.timeout, described(calls))) from None
        natives: list[NativeWork] = [native for native in started if native is not None]
        if not natives:
            record.open = 0
            return self.noted(Done(result))
        record.started(natives[-1])
        return self.noted(Pending(natives, result, finish, str(calls[0][0]), self.failed, calls))

    def failed(self, error: BaseException) -> BaseException:
        """Return the error of an operation, after the hooks of an abort unless nothing has moved."""
        if isinstance(error, dist.DistError):
            self.aborted()
        else:
            self.record.open = 0
        return error

    def abort(self, why: str) -> None:
        """End the communicators of the hosts and of the GPUs on all ranks at once."""
        for comm in self.all_comms():
            comm.abort(why)

    def aborted(self) -> None:
        """Call the hooks of an abort, and write the flight recorder if the environment asks for it."""
        for hook in list(self.on_abort.values()):
            hook()
        on_failure()

    def _enqueue(
        self,
        opts: Any,
        result: Any,
        calls: Sequence[tuple[Any, ...]],
        finish: Sequence[Finish],
        keep: Any,
        device: torch.device,
        limit: float | None,
        hints: Any,
    ) -> Any:
        """Put calls into the current stream of a GPU; those that are asynchronous beside it, so that they go on
        together with what the caller puts there next."""
        index = device.index
        comm: Any = self._devices.get(index) or self.on(device)
        if not opts.asyncOp:
            stream = torch._C._cuda_getCurrentRawStream(index)
            for call in calls:
                comm.call(*(call if len(call) == 6 else _full(call)), limit, hints, stream)
            for due in finish:
                due()
            return ended(result)
        beside = self.beside(device)
        for call in calls:
            comm.call(*(call if len(call) == 6 else _full(call)), limit, hints, beside.raw, None, True)
        if finish:
            with torch.cuda.stream(beside.stream):
                for due in finish:
                    due()
        return self.noted(OnStream(result, device, keep, beside))

    def beside(self, device: torch.device) -> Beside:
        """Return the stream for asynchronous operations of a GPU, after what is in the current stream."""
        beside = self._beside.get(device.index)
        if beside is None:
            beside = self._beside[device.index] = Beside(device)
        beside.follow()
        return beside

    def shutdown(self) -> None:
        """End the communicators of the GPUs, and of the hosts, after what was started."""
        for comm in self._devices.values():
            comm.shutdown()
        self._devices.clear()
        self.comm.shutdown()

    def synchronize(self) -> None:
        """Wait until the GPUs have done what their current streams have, and the operations beside them."""
        for index in self._devices:
            torch.cuda.current_stream(index).synchronize()
        for beside in self._beside.values():
            beside.stream.synchronize()

    def noted(self, work: Any) -> Any:
        """Return the work, and remember it where calls are being coalesced: their end waits for it."""
        if self.coalesced is not None:
            self.coalesced.append(work)
        return work


def _full(call: tuple[Any, ...]) -> tuple[str, Any, Any, str, float, int]:
    """Return the first six arguments of the native call."""
    full: Any = call if len(call) == 6 else call + ("sum", 1.0, 0)[len(call) - 3 :]
    return full  # type: ignore[no-any-return]
