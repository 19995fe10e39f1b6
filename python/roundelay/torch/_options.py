"""Options of a group."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import Backend

from ._hints import pairs

_DEFAULT = timedelta(minutes=30)


class Options(Backend.Options):
    """What ``pg_options`` of ``init_process_group`` and ``new_group`` takes.

    ``hints`` maps keys of ``docs/hints.md`` to values, such as ``{"algorithm": "ring", "lossy": "bf16"}``,
    or ``{"deterministic": "batch_invariant"}`` for results that do not depend on sizes (``docs/reproducible.md``).
    ``timeout`` is the longest time without progress; ``init_process_group(timeout=…)`` sets it too. ``compiled`` asks
    for the backend in C++, which is compiled at its first use (:mod:`roundelay.torch.compiled`); without it the
    environment variable ``ROUNDELAY_TORCH_COMPILED`` says.
    """

    def __init__(
        self,
        hints: Mapping[str, object] | None = None,
        timeout: timedelta = _DEFAULT,
        compiled: bool | None = None,
    ) -> None:
        super().__init__("roundelay", timeout=timeout)
        self.hints: list[tuple[str, str]] = pairs(hints)
        self.compiled = compiled
        self.group_desc = ""
        """The description of a group that is gone; torch has that of one that lives."""


def hints_of(options: object) -> list[tuple[str, str]]:
    """Return the hints of whatever was passed as options: ours, a mapping, or those of another backend (none)."""
    hints = options if isinstance(options, Mapping) else getattr(options, "hints", None)
    found = pairs(hints) if isinstance(hints, Mapping) else list(hints) if isinstance(hints, list) else []
    if ("on_failure", "shrink") in found:
        raise ValueError(
            "roundelay: the hint on_failure=shrink changes ranks and their number, which a process group cannot: "
            "leave it out, and make a new group after a failure"
        )
    return found


def set_timeout(timeout: timedelta, group: Any) -> None:
    """Set the timeout of all backends of a group."""
    group = dist.group.WORLD if group is None else group
    if not isinstance(group, dist.ProcessGroup):
        raise ValueError(f"{group!r} is no process group: call init_process_group before")
    backends = [group._get_backend(device) for device in group._device_types]
    for at, backend in enumerate(backends):
        if any(backend is other for other in backends[:at]):
            continue
        if hasattr(backend, "_set_default_timeout"):
            backend._set_default_timeout(timeout)
        else:  # Before 2.14 torch shows this of its own backends only.
            from . import compiled

            compiled.module().set_timeout(backend, timeout.total_seconds())
