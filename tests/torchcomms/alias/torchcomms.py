"""Has programs that import `torchcomms` get `roundelay.torchcomms`, with its modules: the folder goes on PYTHONPATH.

$TORCHCOMMS_CHECKOUT names a checkout of torchcomms, of which modules are taken that are only there: its tests, and
`distwrap`, which is Python over the API.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import os
import sys
from types import ModuleType
from typing import Any

OWN = "roundelay.torchcomms"


class AliasFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `torchcomms.X`, which is `roundelay.torchcomms.X`: the same module, not a second one.

    What is only in the checkout is found by both names, for `from torchcomms import X` asks for the latter.
    """

    def __init__(self) -> None:
        self.own_spec: Any = None

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        package, _, part = name.rpartition(".")
        if package == OWN:
            return importlib.machinery.ModuleSpec(name, self) if self.in_checkout(part) else None
        if not name.startswith("torchcomms."):
            return None
        if package == "torchcomms" and (found := self.in_checkout(part)):
            return found
        try:
            importlib.import_module(OWN + name.removeprefix("torchcomms"))
        except ModuleNotFoundError:
            return None
        return importlib.machinery.ModuleSpec(name, self)

    def in_checkout(self, part: str) -> importlib.machinery.ModuleSpec | None:
        """Return where a module lies that the checkout alone has."""
        checkout = os.environ.get("TORCHCOMMS_CHECKOUT")
        if not checkout or part not in ("distwrap", "tests"):
            return None
        return importlib.machinery.PathFinder.find_spec(f"torchcomms.{part}", [f"{checkout}/comms/torchcomms"])

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        package, part = spec.name.rsplit(".", 1) if spec.name.startswith(OWN) else spec.name.split(".", 1)
        module = importlib.import_module(f"{'torchcomms' if package == OWN else OWN}.{part}")
        self.own_spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # What the import has put there is the alias's.
        module.__spec__ = self.own_spec


sys.meta_path.insert(0, AliasFinder())
sys.modules["torchcomms"] = importlib.import_module(OWN)
