"""A process group that stands in for another one: it passes every call on, and observes it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import Backend

from ._entries import ENDED, NO_TENSORS, WORK, WORKS, sizes
from ._observer import GroupObserver
from ._works import WATCHED, watch_class

_now = time.monotonic_ns

_NOTHING = NO_TENSORS, NO_TENSORS, None
"""The sample of a barrier."""


def _of_two(given: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Return the sample of an operation from inputs to outputs."""
    output, input = given[:2]
    if type(output) is not list and type(input) is not list:
        return input.numel(), input.dtype, output.numel(), output.dtype
    return sizes(input), sizes(output), None


def _of_parts(given: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Return the sample of an exchange of parts of one tensor."""
    output, input = given[:2]
    received = given[2] if len(given) > 2 else named.get("output_split_sizes")
    sent = given[3] if len(given) > 3 else named.get("input_split_sizes")
    parts = (list(sent or ()), list(received or ()), input.shape, output.shape) if sent or received else None
    return sizes(input), sizes(output), parts


def _of_tensors(given: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Return the sample of an operation on the tensors of one list."""
    return sizes(given[0]), NO_TENSORS, None


def _of_received(given: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Return the sample of a receive."""
    return NO_TENSORS, sizes(given[0]), None


def _observed(own: str, name: str, sample: Any, at: int) -> Callable[..., Any]:
    """Return a method that passes a call on and records it.

    ``own`` is its name, ``name`` that of the operation, ``at`` the place of the options, or of the peer. ``sample`` is
    the place of the tensor whose size has to be equal on all ranks, or a function. All is written out here, since the
    call of a function takes a tenth of the time that there is.
    """
    is_message = name in ("send", "recv")
    index = sample if isinstance(sample, int) else -1

    def method(self: ObservedGroup, *given: Any, **named: Any) -> Any:
        track = self.messages if is_message else self.collectives
        dtype = None
        if index >= 0:
            tensor = given[index]
            if type(tensor) is list:
                tensor = tensor[0]
            taken: Any = tensor.numel()
            dtype = tensor.dtype
        else:
            taken = sample(given, named) if sample is not None else _NOTHING
        options = (given[at] if len(given) > at else None) if not named else named.get("opts", named.get("op"))
        track.count = number = track.count + 1
        entry = [number, name, taken, dtype, options, _now(), False, None, None, track, None]
        track.latest.append(entry)
        if track.prepare is not None:
            track.prepare(track, entry)
        try:
            work = self.methods[own](*given, **named)
        except BaseException as error:
            raise self.observer.refused(entry, error)
        if work is None:
            entry[ENDED] = True
            return None
        entry[WORK] = work
        WORKS[id(work)] = entry
        if type(work) not in WATCHED:
            watch_class(type(work))
        return work

    return method


_OBSERVED: dict[str, tuple[str, Any, int]] = {
    "allreduce": ("all_reduce", 0, 1),
    "allreduce_coalesced": ("all_reduce_coalesced", _of_tensors, 1),
    "broadcast": ("broadcast", 0, 1),
    "reduce": ("reduce", 0, 1),
    "allgather": ("all_gather", _of_two, 2),
    "all_gather_single": ("all_gather_single", 1, 2),
    "_allgather_base": ("all_gather_single", 1, 2),
    "allgather_coalesced": ("all_gather_coalesced", _of_two, 2),
    "all_gather_single_coalesced": ("all_gather_single_coalesced", _of_two, 2),
    "allgather_into_tensor_coalesced": ("all_gather_single_coalesced", _of_two, 2),
    "reduce_scatter": ("reduce_scatter", _of_two, 2),
    "reduce_scatter_single": ("reduce_scatter_single", 0, 2),
    "_reduce_scatter_base": ("reduce_scatter_single", 0, 2),
    "reduce_scatter_single_coalesced": ("reduce_scatter_single_coalesced", _of_two, 2),
    "reduce_scatter_tensor_coalesced": ("reduce_scatter_single_coalesced", _of_two, 2),
    "gather": ("gather", _of_two, 2),
    "gather_single": ("gather_single", _of_two, 2),
    "gather_into_tensor": ("gather_single", _of_two, 2),
    "scatter": ("scatter", _of_two, 2),
    "alltoall": ("all_to_all", _of_two, 2),
    "all_to_all_single": ("all_to_all_single", _of_parts, 4),
    "alltoall_base": ("all_to_all_single", _of_parts, 4),
    "send": ("send", _of_tensors, 1),
    "recv": ("recv", _of_received, 1),
    "recv_anysource": ("recv", _of_received, 9),
    "barrier": ("barrier", None, 0),
}
"""The operations by the methods of a group: name, sample, and place of the options among the arguments."""

_KEPT = {"boxed", "unbox", "BackendType"}
"""What a group has for itself: its own handles in C++."""


class ObservedGroup(dist.ProcessGroup):
    """A group whose calls are passed on to another one and observed.

    Torch takes it wherever it takes the other one: in collectives, and in modules and meshes that are made of it.
    """

    def __init__(self, inner: Any, observer: GroupObserver) -> None:
        super().__init__(observer.rank, observer.size)
        self.inner = inner
        """The group that makes the calls."""
        self.observer = observer
        """The record of this rank's calls, and what is known of those of the others."""
        self.collectives, self.messages = observer.collectives, observer.messages
        self._coalesced_from = 0, 0
        observer.on_close = self._pass_on
        self.methods: dict[str, Callable[..., Any]] = {
            name: getattr(inner, name) for name in _OBSERVED if hasattr(inner, name)
        }
        """The methods of the inner group, by name."""
        # C++ asks a group for its backends, as DDP's log does.
        for device in getattr(inner, "_device_types", ()):
            backend = inner._get_backend(device)
            if isinstance(backend, Backend):
                kind = dist.Backend.backend_type_map.get(observer.backend, dist.ProcessGroup.BackendType.CUSTOM)
                dist.ProcessGroup._register_backend(self, device, kind, backend)

    # What torch asks for in C++.

    def rank(self) -> int:
        """Return the number of this rank."""
        return self.observer.rank

    def size(self) -> int:
        """Return the number of ranks."""
        return self.observer.size

    def getRank(self) -> int:
        """Return the number of this rank."""
        return self.observer.rank

    def getSize(self) -> int:
        """Return the number of ranks."""
        return self.observer.size

    def getBackendName(self) -> str:
        """Return the name of the backend."""
        return self.observer.backend

    def getGroupName(self) -> str:
        """Return the name of the group."""
        return str(self.inner.group_name)

    def setGroupName(self, name: str) -> None:
        """Pass the name on."""
        self.inner._set_group_name(name)

    def getGroupDesc(self) -> str:
        """Return the description of the group."""
        return str(self.inner.group_desc)

    def setGroupDesc(self, text: str) -> None:
        """Pass the description on."""
        self.inner._set_group_desc(text)

    def start_coalescing(self, device: Any = None) -> None:
        """Begin to collect operations."""
        self._coalesced_from = self.messages.count, self.collectives.count
        self.inner._start_coalescing(device)

    def end_coalescing(self, device: Any = None) -> Any:
        """Return the work of the operations that were collected: it stands for the last of them."""
        work = self.inner._end_coalescing(device)
        for track, before in zip((self.messages, self.collectives), self._coalesced_from, strict=True):
            *others, last = [None, *track.since(before)]
            for entry in others:
                if entry is not None:
                    WORKS.pop(id(entry[WORK]), None)
                    entry[ENDED], entry[WORK] = True, None
            if last is not None and work is not None:
                self.observer.started(last, work)
        return work

    def _start_coalescing(self, device: Any = None) -> None:
        self.start_coalescing(device)

    def _end_coalescing(self, device: Any = None) -> Any:
        return self.end_coalescing(device)

    # The end.

    def _pass_on(self) -> None:
        """Have calls go to the inner group without a record from now on."""
        for name, method in self.methods.items():
            setattr(self, name, method)

    def shutdown(self) -> None:
        """End the observation, and the group."""
        self.observer.close()
        self.inner.shutdown()

    def abort(self) -> None:
        """End the observation, and abort the group."""
        self.observer.close()
        self.inner.abort()


def _passed_on(name: str) -> Any:
    """Return a method or property that is that of the inner group."""
    own = getattr(dist.ProcessGroup, name)
    if isinstance(own, property):
        return property(
            lambda self: getattr(self.inner, name),
            lambda self, value: setattr(self.inner, name, value),
            doc=own.__doc__,
        )

    def method(self: ObservedGroup, *given: Any, **named: Any) -> Any:
        return getattr(self.inner, name)(*given, **named)

    method.__name__, method.__doc__ = name, own.__doc__
    return method


def _complete() -> None:
    """Give the class a method for each that a group has, whichever version of torch it is."""
    for name in dir(dist.ProcessGroup):
        if name.startswith("__") or name.startswith("_pybind") or name in _KEPT or name in vars(ObservedGroup):
            continue
        if name in _OBSERVED:
            setattr(ObservedGroup, name, _observed(name, *_OBSERVED[name]))
        else:
            setattr(ObservedGroup, name, _passed_on(name))


_complete()


def put_in_place(observed: ObservedGroup) -> None:
    """Have torch find an observed group where it has found its inner one: by name, as default group, by its ranks."""
    c10d: Any = dist.distributed_c10d
    inner, world = observed.inner, c10d._world
    for table in ("pg_map", "pg_names", "pg_group_ranks", "pg_backend_config", "pg_to_tag", "pg_coalesce_state"):
        found = getattr(world, table, {})
        if inner in found:
            found[observed] = found.pop(inner)
    hooks = getattr(world, "pg_flight_recorder_hooks", {})
    if inner in hooks:
        hooks[observed] = hooks.pop(inner)
    for groups in world.tags_to_pg.values():
        groups[:] = [observed if group is inner else group for group in groups]
    name = inner.group_name
    c10d._unregister_process_group(name)
    c10d._register_process_group(name, observed)
    if world.default_pg is inner:
        c10d._update_default_pg(observed)
