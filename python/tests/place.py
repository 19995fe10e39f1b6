"""Where the package under test lies: a rank must import the one that the tests import.

That is the installed one where there is one (a checkout has no native module then), else that of the checkout.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

_spec = importlib.util.find_spec("roundelay")
assert _spec is not None and _spec.origin is not None, "the package roundelay is neither installed nor on PYTHONPATH"
PACKAGE = str(Path(_spec.origin).parents[1])
"""The folder that holds the package."""


def search_path(*more: str) -> str:
    """Return a PYTHONPATH for a rank: the package, this module, more folders, and what this process was given."""
    own = str(Path(__file__).parent)
    return os.pathsep.join(filter(None, [PACKAGE, own, *more, os.environ.get("PYTHONPATH")]))
