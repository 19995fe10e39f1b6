"""Making of observers, for process groups and communicators."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore

from ...errors import UsageError
from ._comm import CommHooks
from ._exchange import GroupExchange
from ._group import ObservedGroup, put_in_place
from ._observer import GroupObserver

_observers: dict[int, tuple[Any, GroupObserver]] = {}
"""Communicators that are observed, and their observers, by ``id``."""


def observe(
    target: Any = None,
    *,
    timeout: float | timedelta | None = None,
    check: str = "late",
    late: float = 1.0,
    interval: float = 1.0,
    flight: str | None = None,
    stacks: bool = False,
    store: Any = None,
) -> Any:
    """Observe a group or communicator; see ``roundelay.observe``."""
    if check not in ("late", "before"):
        raise UsageError(f"observe: check is {check!r}: it is 'late' or 'before'")
    if min(late, interval) <= 0:
        raise UsageError(f"observe: late is {late:g} s and interval {interval:g} s: both are more than 0")
    if target is None:
        target = dist.group.WORLD
    if isinstance(target, ObservedGroup):
        raise UsageError(f"observe: group {target.observer.name} is observed already: call it once for a group")
    settings: dict[str, Any] = dict(
        late=late, interval=interval, before=check == "before", flight=flight, stacks=stacks
    )
    if isinstance(target, dist.ProcessGroup):
        return _observe_group(target, timeout, store, settings)
    if hasattr(target, "register_pre_hook") and hasattr(target, "get_rank"):
        return _observe_comm(target, timeout, store, settings)
    raise UsageError(
        "observe takes a process group of torch.distributed or a communicator of torchcomms, not "
        f"{type(target).__name__}: of a backend, pass the group or the communicator that has it"
    )


def observer_of(target: Any) -> GroupObserver:
    """Return the observer of a group or communicator that :func:`observe` was called with, or has returned.

    Raises ``UsageError`` if it is not observed.
    """
    if isinstance(target, ObservedGroup):
        return target.observer
    found = _observers.get(id(target))
    if found is None or found[0] is not target:
        raise UsageError(f"{target!r} is not observed: call roundelay.observe first")
    return found[1]


def _seconds(given: float | timedelta | None, own: timedelta | None) -> float:
    chosen = own if given is None else given
    seconds = chosen.total_seconds() if isinstance(chosen, timedelta) else 1800.0 if chosen is None else float(chosen)
    if seconds <= 0:
        raise UsageError(f"observe: the timeout is {seconds:g} s: give more than 0")
    return seconds


def _group_timeout(group: Any) -> timedelta | None:
    """Return the timeout of a group's first backend, as far as it says so."""
    for device in getattr(group, "_device_types", ()):
        try:
            return timedelta(seconds=group._get_backend(device).options._timeout.total_seconds())
        except (AttributeError, RuntimeError, TypeError):
            continue
    return None


def _group_store(group: Any) -> Any:
    found = dist.distributed_c10d._world.pg_map.get(group)
    if found is not None and found[1] is not None:
        return found[1]
    raise UsageError("observe: the group has no store: pass store=, one that all ranks of the group share")


def _backend_name(group: Any) -> str:
    found = dist.distributed_c10d._world.pg_map.get(group)
    name = "" if found is None else str(found[0])
    kinds = {each.partition(":")[2] or each for each in name.split(",") if each}
    if not kinds or kinds == {"undefined"}:
        return str(group.name()).lower()
    return "+".join(sorted(kinds))


def _observe_group(group: Any, timeout: Any, store: Any, settings: dict[str, Any]) -> ObservedGroup:
    rank, size = group.rank(), group.size()
    ranks = dist.distributed_c10d._world.pg_group_ranks.get(group, {})
    observer = GroupObserver(
        GroupExchange(_group_store(group) if store is None else store, rank, size),
        rank,
        size,
        name=str(group.group_name),
        backend=_backend_name(group),
        ranks=sorted(ranks, key=lambda each: ranks[each]) or list(range(size)),
        timeout=_seconds(timeout, _group_timeout(group)),
        abort=lambda: group.abort(),
        **settings,
    )
    observed = ObservedGroup(group, observer)
    put_in_place(observed)
    return observed


def _observe_comm(comm: Any, timeout: Any, store: Any, settings: dict[str, Any]) -> Any:
    options = comm.get_options() if hasattr(comm, "get_options") else None
    found = store
    for holder, name in ((comm, "_store"), (options, "store")):
        found = getattr(holder, name, None) if found is None else found
    if found is None:
        raise UsageError("observe: the communicator has no store: pass store=, one that all its ranks share")
    rank, size = comm.get_rank(), comm.get_size()
    if store is None:
        found = PrefixStore(f"roundelay/comm/{comm.get_name()}", found)
    observer = GroupObserver(
        GroupExchange(found, rank, size),
        rank,
        size,
        name=str(comm.get_name()),
        backend=str(comm.get_backend()),
        ranks=list(comm.get_ranks()) if hasattr(comm, "get_ranks") else list(range(size)),
        timeout=_seconds(timeout, getattr(options, "timeout", None)),
        abort=lambda: comm.abort(),
        **settings,
    )
    CommHooks(comm, observer)
    _observers[id(comm)] = (comm, observer)
    return comm
