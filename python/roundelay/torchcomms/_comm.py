"""Communicators by the API of torchcomms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor

from .. import _native
from .._ending import watch
from ..errors import UnsupportedError, UsageError
from ..torch._join import join
from ..torch._memory import shared
from ..torch._work import Done
from ._allocator import get_mem_allocator
from ._base import CallHints, CallTimeout, prepare_functional
from ._batch import BatchSendRecv
from ._collectives import Collectives
from ._engine import Engine
from ._hints import checked_hints
from ._hooks import OpName, PostHookArgs, PreHookArgs, operation
from ._join import below, meet, place
from ._persistent import AllGatherPHandle
from ._registry import find_wrapper
from ._types import CommOptions, checked_timeout, default_timeout
from ._window import TorchCommWindow
from .functional import is_torch_compile_supported_and_enabled
from ._work import TorchWork


def new_comm(
    backend: str,
    device: torch.device | str,
    name: str = "comm",
    abort_process_on_timeout_or_error: bool | None = None,
    timeout: timedelta | None = None,
    is_high_priority_stream: bool | None = None,
    store: Any = None,
    enable_reconfigure: bool = False,
    hints: Mapping[str, str] | None = None,
    *,
    rank: int | None = None,
    size: int | None = None,
) -> TorchComm:
    """Make a communicator of all ranks. All of them call it, with the same name.

    ``backend`` is ``"roundelay"``, or a name of ``register_backend``; ``device`` is a CPU or a GPU: without a number
    each rank has one, as long as there are some, and it is the current one afterwards. Rank and size come from the
    launcher (torchrun, mpirun, ``TORCHCOMM_RANK`` and ``TORCHCOMM_SIZE``); the ranks meet in ``store``, or at
    ``MASTER_ADDR`` and ``MASTER_PORT``. ``timeout`` is the longest time without progress (600 s, or
    ``TORCHCOMM_TIMEOUT_SECONDS``), ``hints`` are those of ``docs/hints.md``. Errors are raised, and never end the
    process. With ``enable_reconfigure`` no ranks meet: the communicator has none until ``reconfigure``.

    torchcomms has no ``rank`` and ``size``, which are for ranks that are threads.

    Raises ``UsageError`` for wrong arguments, ``SettingsError`` for unknown hints, ``StartError`` if the ranks cannot
    come together.
    """
    wrap = None if backend == "roundelay" else find_wrapper(backend)
    if is_torch_compile_supported_and_enabled():
        from .functional import collectives  # noqa: F401
    options = CommOptions(store=store, name=name, enable_reconfigure=enable_reconfigure)
    if abort_process_on_timeout_or_error is not None:
        options.abort_process_on_timeout_or_error = abort_process_on_timeout_or_error
    options.timeout = default_timeout() if timeout is None else checked_timeout(timeout)
    if is_high_priority_stream is not None:
        options.is_high_priority_stream = is_high_priority_stream
    options.hints = dict(hints or {})
    device = torch.device(device)
    if device.type not in ("cpu", "cuda"):
        raise UsageError(f"the device is {device}: roundelay has cpu and cuda")
    if enable_reconfigure:
        alone = watch(_native.Communicator.alone(checked_hints(options.hints)))
        made = TorchComm(alone, _own(device, None), name, options, None, [0])
        return made if wrap is None else wrap(made)
    rank, size = place(rank, size)
    device = _own(device, rank)
    meeting = meet(store, name, rank, options.timeout)
    native = join(meeting.store, rank, size, options.timeout, checked_hints(options.hints))
    meeting.over(rank, options.timeout)
    made = TorchComm(native, device, name, options, meeting.store, list(range(size)))
    whole = made if wrap is None else wrap(made)
    prepare_functional(whole)
    return whole


def _own(device: torch.device, rank: int | None) -> torch.device:
    """Return the device of a rank, or of one that has no number yet; a GPU is the current one from now on."""
    if device.type == "cuda":
        if device.index is None:
            number = torch.cuda.current_device() if rank is None else rank % max(torch.cuda.device_count(), 1)
            device = torch.device("cuda", number)
        torch.cuda.set_device(device)
    return device


class TorchComm(Collectives):
    """One rank's part in a communicator, on one device.

    Every operation takes ``async_op``, ``hints`` for this call, and a ``timeout`` (the communicator's if none), and
    returns :class:`TorchWork`. Operations run in the order in which they are called, which must be the same on all
    ranks; sends and receives move beside them.
    """

    def __copy__(self) -> TorchComm:
        return self

    def __deepcopy__(self, memo: object) -> TorchComm:
        return self

    # Memory.

    def allocate_tensor(self, size: int, *, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return a tensor of zeros in memory that the other ranks of this host map; torchcomms has no such call.

        Operations on it are not copied on the way, and a window of it can be mapped. On the CPU only.
        """
        self._live("allocate_tensor")
        if self._device.type != "cpu":
            raise UnsupportedError(f"allocate_tensor: the communicator is on {self._device}: use torch.empty")
        return shared(self._native, size, dtype)

    # Settings, and the end.

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the longest time without progress of the operations from now on."""
        self._timeout = checked_timeout(timeout)
        self._options.timeout = self._timeout
        self._engine.set_timeout(self._timeout)

    def set_hints(self, hints: Mapping[str, str]) -> None:
        """Set the hints of the operations from now on; the same on all ranks."""
        self._engine.set_hints(checked_hints(hints))
        self._options.hints = dict(hints)

    def finalize(self) -> None:
        """End this rank's part, after all operations that were started. The other ranks do the same."""
        self._live("finalize")
        self._refuse_children()
        if self._pre:
            for pre in self._pre.all():
                pre(OpName.finalize, -1, PreHookArgs())
        self._forget_groups()
        self._finalized = True
        self._finish()
        for post in self._post.all():
            post(-1, PostHookArgs(name=OpName.finalize))

    def _finalize_for_group(self) -> None:
        """Finalize the communicator as ``destroy_process_group`` asks, which empties torch's tables by itself."""
        for group in self._groups:
            group.release()
        self._groups = []
        if not self._finalized:
            self.finalize()

    def _finish(self) -> None:
        self._end()

    def _refuse_children(self) -> None:
        """Raise ``UsageError`` in a process that was forked from the rank."""
        if not self._native.is_here:
            self._native.shutdown()

    def abort(self) -> None:
        """End the communicator on all ranks, from any thread, at once: pending and later operations fail."""
        if self._native.is_here:
            self._tell_abort()
        self._engine.abort("abort() was called on the communicator")

    def is_abort_supported(self) -> bool:
        """Return True."""
        return True

    def is_aborted(self) -> bool:
        """Return True once any rank has ended the communicator."""
        return self._native.aborted

    def batch_op_create(self) -> BatchSendRecv:
        """Begin a batch of sends and receives."""
        return BatchSendRecv(self)

    # Parts.

    def split(
        self, ranks: Sequence[int], name: str, hints: CallHints = None, timeout: CallTimeout = None
    ) -> TorchComm | None:
        """Make a communicator of a part of the ranks, numbered as they are listed.

        The ranks of a part call it with the same list and name; a rank that is in none passes an empty list and gets
        None. ``hints`` go before those of this communicator, and ``timeout`` is this one's by default.

        Raises ``UsageError`` if a rank is listed twice or does not exist, or if the caller is not listed.
        """
        self._live("split")
        self._refuse_children()  # A part is joined through the store: a child would be in it in the rank's place.
        if self._store is None:
            raise UsageError("split: the communicator was made with enable_reconfigure: make a part by other handles")
        listed = [self._peer(rank, "rank") for rank in ranks]
        if len(set(listed)) != len(listed):
            raise UsageError(f"split: {listed} lists a rank twice")
        if listed and self._rank not in listed:
            raise UsageError(f"split: rank {self._rank} is not in {listed}: pass [] on ranks that are in no part")
        number = next(operation)
        for pre in self._pre.all():
            pre(OpName.split, number, PreHookArgs(ranks=listed, name=name))
        if not listed:
            return None
        options = CommOptions(
            self._options.abort_process_on_timeout_or_error,
            self._timeout if timeout is None else checked_timeout(timeout),
            self._options.is_high_priority_stream,
            self._options.store,
            False,
            {**self._options.hints, **(hints or {})},
            name,
        )
        rank = listed.index(self._rank)
        # Parts of the same name are distinguished by their ranks.
        found = below(self._store, f"{name}/{','.join(map(str, listed))}", rank)
        native = join(found, rank, len(listed), options.timeout, checked_hints(options.hints))
        made = TorchComm(native, self._device, name, options, found, [self._ranks[each] for each in listed])
        prepare_functional(made)
        made._family = self._family
        for post in self._post.all():
            post(number, PostHookArgs(comm=made, name=OpName.split, op_id=number))
        return made

    def get_init_handle(self) -> str:
        """Return this rank's handle, a short text that all ranks of the next generation must be given.

        It serves for one call of ``reconfigure``, whatever becomes of that.
        """
        self._there("get_init_handle")
        return self._native.handle()

    def reconfigure(
        self,
        uuid: int,
        init_handles: Sequence[str] | AbstractSet[str],
        timeout: CallTimeout = None,
        hints: CallHints = None,
    ) -> TorchWork:
        """Go on with exactly the ranks that the handles name, also after an error or ``abort``.

        All of them call it, with the same handles and ``uuid``, a number that this communicator has not had. Ranks are
        the places in a list; those of a set are numbered by the runtime. The work has ended when it returns; ``hints``
        are those of the calls from then on. If it raises, the communicator is what it was before, and may try again by
        new handles.
        """
        self._there("reconfigure")
        if uuid in self._uuids:
            raise UsageError(f"reconfigure: uuid {uuid} was already used by {self._name!r}: pass another one")
        given = None if hints is None else checked_hints(hints)
        limit = checked_timeout(timeout).total_seconds() or self._timeout.total_seconds()
        ordered = not isinstance(init_handles, AbstractSet)
        self._forget_groups()  # Their ranks and sizes cannot change.
        self._engine = Engine(self._native, self._timeout)
        self._native.reconfigure(str(uuid), list(init_handles), ordered, limit)
        self._uuids.add(uuid)
        self._waits = self._told = False
        self._rank, self._size = self._native.rank, self._native.size
        self._ranks = list(range(self._size))
        self._engine = Engine(self._native, self._timeout)
        if given is not None:
            self._native.set_hints(given)
            self._options.hints = dict(hints or {})
        return TorchWork(Done(), self._device)

    def new_window(self, tensor: Tensor | None = None) -> TorchCommWindow:
        """Make a window, of a tensor if one is given; all ranks give one, or register one later. Collective."""
        self._live("new_window")
        return TorchCommWindow(self, tensor)

    # Persistent operations.

    def all_gather_p_init(
        self, output: Tensor, hints: CallHints = None, timeout: CallTimeout = None
    ) -> AllGatherPHandle:
        """Make a handle of an all_gather to ``output``, of ``size`` times as many elements as the inputs.

        ``hints`` and ``timeout`` are those of its calls, unless a call has its own.
        """
        self._live("all_gather_p_init")
        checked_timeout(timeout)
        return AllGatherPHandle(self, output, hints, timeout)

    def all_gather_p_exec(
        self,
        handle: AllGatherPHandle,
        input: Tensor,
        async_op: bool,
        hints: CallHints = None,
        timeout: CallTimeout = None,
    ) -> TorchWork:
        """Collect the inputs of all ranks in the output of a handle."""
        output = handle.output_of(self, "all_gather_p_exec")
        hints = {**(handle.hints or {}), **(hints or {})} or None
        return self.all_gather_single(output, input, async_op, hints, handle.timeout if timeout is None else timeout)

    def all_gather_p_free(self, handle: AllGatherPHandle) -> None:
        """Forget the output of a handle, which is of no use any more."""
        handle.output_of(self, "all_gather_p_free")
        handle.free()

    # Memory of GPUs.

    def get_mem_allocator(self) -> Any:
        """Return the allocator of :func:`get_mem_allocator`."""
        self._there("get_mem_allocator")
        return get_mem_allocator("roundelay")

    @property
    def mem_allocator(self) -> Any:
        """The same, by the older name."""
        return self.get_mem_allocator()

    def tensor_register(self, tensor: Tensor) -> None:
        """Do nothing: roundelay needs no registration."""

    def tensor_deregister(self, tensor: Tensor) -> None:
        """Do nothing."""
