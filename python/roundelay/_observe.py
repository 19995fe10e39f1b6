"""Observation of process groups and communicators of any backend; :mod:`roundelay.torch.observed` does it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

__all__ = ["observe", "observer_of"]


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
    """Observe a process group of torch.distributed, or a communicator of torchcomms, of any backend. Collective.

    A rank that makes another call than the others, that makes none within the timeout, or whose process ends or is
    stopped, is named in the errors of all ranks. Returns what is to be used in the place of ``target``: a group that
    takes its place in torch's tables, too, or the communicator itself. Without a target the default group is observed.

    ``timeout`` is the time in seconds, or a ``timedelta``, after which a call is overdue: by default that of the group.
    ``check`` is ``"late"``: records are compared once in ``interval`` seconds, and when a call goes on for ``late``
    seconds; or ``"before"``: each collective is compared on all ranks before it is made, at the cost of round trips to
    the store. ``flight`` is a prefix of files: at a verdict each rank writes its flight record, which ``roundelay
    doctor`` reads. ``stacks`` records the stack of each call. ``store`` is one that all ranks share; by default the
    group's own.

    >>> dist.init_process_group("gloo")
    >>> roundelay.observe(timeout=60, flight="trace/flight-")
    >>> dist.all_reduce(tensor)

    Needs torch. Raises ``UsageError`` for what cannot be observed, or is observed already. Errors of calls are
    ``MismatchError``, ``LostRankError`` and ``OperationTimeoutError``, whose ``peer`` is the rank at fault.
    """
    from .torch.observed import observe as observe_target

    return observe_target(
        target,
        timeout=timeout,
        check=check,
        late=late,
        interval=interval,
        flight=flight,
        stacks=stacks,
        store=store,
    )


def observer_of(target: Any) -> Any:
    """Return the observer of a group or communicator: it has ``check()``, ``flight()``, ``verdict`` and ``close()``.

    Raises ``UsageError`` if the target is not observed.
    """
    from .torch.observed import observer_of as find_observer

    return find_observer(target)
