"""The names of :mod:`roundelay.torchcomms` where torchcomms has them too: in its compiled module."""

from __future__ import annotations

from typing import Any

from .. import torchcomms

__all__ = [name for name in torchcomms.__all__ if name not in torchcomms._MODULES]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(torchcomms, name)
