"""The entry point of ``torchcomms.backends``: has torchcomms find the backend that was built for it.

``python -m roundelay torchcomms build`` builds it; until then the one in Python stands in. ``docs/torchcomms.md`` has
the rest.
"""

from __future__ import annotations

import os

from ._build import native, target

_VARIABLE = "TORCHCOMMS_BACKEND_LIB_PATH_ROUNDELAY"

os.environ["ROUNDELAY_NATIVE"] = native()
if _VARIABLE not in os.environ:
    _library = target()
    if _library.is_file():
        os.environ[_VARIABLE] = str(_library)
    else:
        try:
            import torchcomms  # type: ignore[import-not-found]

            from ._trampoline import register

            register(torchcomms)
        except (ImportError, AttributeError) as error:
            raise ImportError(
                f"roundelay: there is no backend for this torchcomms, {_library} is not there, and torchcomms has no "
                f"interface for backends in Python ({error}): set TORCHCOMMS_INCLUDE to a checkout of torchcomms of "
                "the installed version and run `python -m roundelay torchcomms build`; or use `import "
                "roundelay.torchcomms as torchcomms`, which needs no build"
            ) from None
