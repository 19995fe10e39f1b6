"""Operations of communicators with gradients, and inside of ``torch.compile``.

``TORCHCOMMS_PATCH_FOR_COMPILE=1``, or an import of :mod:`roundelay.torchcomms.functional.collectives` before the first
``new_comm``, switches them on. ``docs/torchcomms.md`` has which operations these are.
"""

from __future__ import annotations

import os
import re

__all__ = ["is_torch_compile_supported", "is_torch_compile_supported_and_enabled"]

MIN_PYTORCH_VERSION_FOR_COMPILE = "2.12.0"
"""The first torch whose functional collectives have the gradients that are needed."""


def _numbers(version: str) -> tuple[int, int]:
    found = re.findall(r"\d+", version)
    return int(found[0]), int(found[1])


def is_torch_compile_supported(
    min_version: str = MIN_PYTORCH_VERSION_FOR_COMPILE, _current_version: str | None = None
) -> bool:
    """Return True if the installed torch is of a version, 2.12 or later, that the operations need."""
    if os.environ.get("TORCHCOMMS_COMPILE_IGNORE_PYTORCH_VERSION_REQUIREMENT") == "1":
        return True
    if _current_version is None:
        import torch

        _current_version = torch.__version__
    return _numbers(_current_version) >= _numbers(min_version)


def is_torch_compile_supported_and_enabled(
    min_version: str = MIN_PYTORCH_VERSION_FOR_COMPILE, _current_version: str | None = None
) -> bool:
    """Return True if ``TORCHCOMMS_PATCH_FOR_COMPILE`` is 1, and the installed torch has what is needed."""
    return os.environ.get("TORCHCOMMS_PATCH_FOR_COMPILE") == "1" and is_torch_compile_supported(
        min_version, _current_version
    )
