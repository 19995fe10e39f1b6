"""Hints of programs that are written for several backends."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping

from .. import _native
from ..errors import SettingsError

_OTHERS = frozenset(
    (
        "hostname interface is_high_priority_stream lazy_init max_event_pool_size persistent_store backend "
        "global_ranks_in_group group_desc group_name name hints"
    ).split()
)
"""What torchcomms and c10d add by themselves, and hints of other backends by names that ours have too."""


@functools.cache
def _known(key: str) -> bool:
    """Return True if there is a hint of that name; warn, once a key, if there is none."""
    try:
        _native.check_hint(key)
    except SettingsError as error:
        warnings.warn(
            f"roundelay: the hint `{key}` is left out, as one of another backend: {error}. Written `roundelay::{key}` "
            "it would be refused",
            stacklevel=4,
        )
        return False
    return True


def checked_hints(hints: Mapping[str, object] | None) -> list[tuple[str, str]]:
    """Return hints as pairs of strings, for the native part.

    Keys with the prefix ``roundelay::`` are ours, and the native part refuses those that it does not know. Keys with
    the prefix of another backend are left out. Of keys without a prefix those that we know count, the others are left
    out with a warning: torchcomms passes the same hints to every backend.
    """
    kept: list[tuple[str, str]] = []
    for key, value in (hints or {}).items():
        owner, prefixed, name = key.rpartition("::")
        if prefixed:
            if owner != "roundelay":
                continue
        elif key in _OTHERS or key.startswith("_") or not _known(key):
            continue
        kept.append((name, str(value).lower() if isinstance(value, bool) else str(value)))
    return kept
