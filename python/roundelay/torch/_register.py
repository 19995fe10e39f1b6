"""Names of backends."""

from __future__ import annotations

import functools
import os
from typing import Any

import torch
import torch.distributed as dist

from ..errors import SettingsError
from . import NAME
from ._version import VERSION

VARIABLE = "ROUNDELAY_REPLACE"
COMPILED = "ROUNDELAY_TORCH_COMPILED"


def supports_backends() -> bool:
    """Return True if torch lets a backend be a Python class (2.14 and later)."""
    return VERSION >= (2, 14)


def _create(options: Any, group_options: Any = None, name: str = NAME) -> Any:
    """Make the backend of one group, for a backend of a name: what torch calls."""
    if getattr(group_options, "compiled", None) is not None or os.environ.get(COMPILED):
        from . import compiled

        if compiled.wanted(group_options):
            return compiled.create(options, group_options, name)
    if supports_backends():
        from ._backend import create

        return create(options, group_options, name)
    from ._group import create as create_group

    return create_group(options, group_options, name)


def register_as(name: str) -> None:
    """Register under a name, in the place of what has that name."""
    if not dist.is_available():
        return
    place = name
    if not supports_backends() and hasattr(dist.Backend, name.upper()) and name != NAME:
        place = f"{NAME}_{name}"
    plugin = dist.Backend._plugins.get(place.upper())
    if plugin is None or getattr(plugin.creator_fn, "func", None) is not _create:
        creator = functools.partial(_create, name=name)
        dist.Backend.register_backend(place, creator, extended_api=True, devices=["cpu", "cuda"])
        # Both faces record their calls; torch would hang its flight recorder before and after each.
        recording: set[str] = getattr(dist.distributed_c10d, "_FR_SELF_RECORDING_BACKENDS", set())
        recording.add(place)
    if place != name:
        _put_in_place(name, place)


_places: dict[str, str] = {}
"""Backends that are made in the place of others, by the names of these."""


def _put_in_place(name: str, by: str) -> None:
    """Have groups of a name made by another backend, where torch makes its own before it looks at those registered."""
    config = dist.distributed_c10d.BackendConfig
    if not _places:
        given = config.__init__

        @functools.wraps(given)
        def init(self: Any, backend: Any) -> None:
            given(self, backend)
            of = self.device_backend_map
            of.update((device, _places.get(each, each)) for device, each in list(of.items()))

        config.__init__ = init  # type: ignore[method-assign]
    _places[name] = by
    dist.Backend.backend_type_map[name] = dist.Backend.backend_type_map[by]


def autoload() -> None:
    """Register our name, and those that the environment names. Raises ``SettingsError`` for one that torch has not."""
    if not dist.is_available():
        return
    register_as(NAME)
    names = [name.strip().lower() for name in os.environ.get(VARIABLE, "").split(",") if name.strip()]
    known = [name for name in getattr(dist.Backend, "backend_list", []) if name not in ("undefined", NAME)]
    for name in names:
        if name not in known:
            raise SettingsError(
                f"{VARIABLE} is {name!r}, which is no backend of torch.distributed: it names one or several of "
                f"{', '.join(known)}, in whose place roundelay is put",
                code="RL0713",
            )
        register_as(name)
