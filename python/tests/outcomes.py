"""What the cases of a rank's program came to."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from typing import Any


def outcomes(cases: Iterable[Callable[[int], Any]], rank: int) -> dict[str, Any]:
    """Return by name what each function returns, or the error that it ends with, as text."""
    found: dict[str, Any] = {}
    for case in cases:
        print(case.__name__, flush=True)
        try:
            found[case.__name__] = case(rank)
        except Exception:
            found[case.__name__] = traceback.format_exc()
    return found


def told(function: Callable[..., Any], *args: Any) -> str:
    """Return the name and the first line of the error that a call ends with, or ``no error``."""
    try:
        function(*args)
    except (RuntimeError, ValueError) as error:
        return f"{type(error).__name__} {str(error).splitlines()[0]}"
    return "no error"
