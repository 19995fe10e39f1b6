"""Hints as the native part takes them: pairs of strings."""

from __future__ import annotations

from collections.abc import Mapping

ACTIVE: list[list[tuple[str, str]]] = []
"""The hints of the ``with`` blocks that the process is in, the innermost last."""


def pairs(given: Mapping[str, object] | None) -> list[tuple[str, str]]:
    """Return hints as pairs; ``True`` and ``False`` are spelt as the runtime spells them."""

    def text(value: object) -> str:
        return str(value).lower() if isinstance(value, bool) else str(value)

    return [(key, text(value)) for key, value in (given or {}).items()]


def active() -> list[tuple[str, str]] | None:
    """Return the hints of the blocks, the innermost counting, or None where there are none."""
    if not ACTIVE:
        return None
    merged: dict[str, str] = {}
    for block in list(ACTIVE):
        merged.update(block)
    return list(merged.items())
