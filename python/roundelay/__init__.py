"""Collective communication with proved algorithms.

A ``Communicator`` is one rank's handle on the others; ``launch`` runs a function on several ranks::

    import numpy as np
    import roundelay

    def main(comm):
        data = np.full(1000, comm.rank, dtype=np.float32)
        comm.all_reduce(data)
        return data[0]

    if __name__ == "__main__":
        print(roundelay.launch(main, 4))  # [6.0, 6.0, 6.0, 6.0]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roundelay import errors
from roundelay._core import Choice
from roundelay._launch import launch, launcher
from roundelay._native import __version__
from roundelay._observe import observe, observer_of
from roundelay._options import Hints, Op, Options, PremulSum, RedOp, premul_sum
from roundelay._algorithm import Algorithm, Checked, Drawing, Measured, algorithm, load
from roundelay.batch import Batch
from roundelay.communicator import Array, Communicator
from roundelay.endpoint import Connecting, Endpoint, Link, Region, RemoteRegion
from roundelay.errors import (
    AbortedError,
    CudaError,
    Error,
    LostRankError,
    MismatchError,
    OperationTimeoutError,
    OutOfMemoryError,
    RefusedError,
    SettingsError,
    StartError,
    UnsupportedError,
    UsageError,
    WindowError,
)
from roundelay.store import Store
from roundelay.window import Right, Window
from roundelay.work import Work

if TYPE_CHECKING:
    from roundelay.errors import MemoryError as MemoryError
    from roundelay.errors import TimeoutError as TimeoutError
else:

    def __getattr__(name: str) -> type[Error]:
        return errors._old_name(__name__, name)


init = Communicator.init

__all__ = [
    "AbortedError",
    "Algorithm",
    "Array",
    "Batch",
    "Checked",
    "Choice",
    "Communicator",
    "Connecting",
    "CudaError",
    "Drawing",
    "Endpoint",
    "Error",
    "Hints",
    "Link",
    "LostRankError",
    "Measured",
    "MismatchError",
    "Op",
    "OperationTimeoutError",
    "Options",
    "OutOfMemoryError",
    "PremulSum",
    "RedOp",
    "RefusedError",
    "Region",
    "RemoteRegion",
    "Right",
    "SettingsError",
    "StartError",
    "Store",
    "UnsupportedError",
    "UsageError",
    "Window",
    "WindowError",
    "Work",
    "__version__",
    "algorithm",
    "errors",
    "init",
    "launch",
    "launcher",
    "load",
    "observe",
    "observer_of",
    "premul_sum",
]
