"""A process group for torchft: one communicator, which goes on from quorum to quorum.

>>> from roundelay.torch.torchft import ProcessGroupRoundelay
>>> manager = torchft.Manager(pg=ProcessGroupRoundelay(timeout=timedelta(seconds=10)), …)

Importing this module loads torchft. See ``docs/elastic.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from torchft.process_group import ProcessGroupWrapper  # type: ignore[import-not-found, import-untyped, unused-ignore]

from ._elastic import Elastic
from ._options import Options, hints_of

__all__ = ["ProcessGroupRoundelay"]


class ProcessGroupRoundelay(ProcessGroupWrapper):  # type: ignore[misc, unused-ignore]
    """A process group that torchft configures for each quorum.

    ``timeout`` is the longest time that a quorum takes to form, and that operations take without progress; ``hints``
    are those of ``docs/hints.md``. It serves tensors on the CPU and on GPUs. Survivors keep their communicator, after
    errors too; newcomers come to them. If a quorum does not form, as where a rank of it is gone, the next one may.
    """

    def __init__(
        self, timeout: timedelta = timedelta(seconds=60), hints: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(timeout)
        self._elastic = Elastic(hints_of(Options(hints)))

    def _create_pg(self, store: Any, rank: int, world_size: int) -> Any:
        """Go on as a rank of a quorum, which has a store of its own.

        The base class calls it: in ``configure``, or since 2026 in ``reconfigure``, once the ranks know each other's
        handles.
        """
        quorum = getattr(self, "_quorum_id", None)
        name = f"torchft_quorum_{getattr(self, '_uuid', None) if quorum is None else quorum}"
        if self._group_rank is not None and self._group_world_size:
            name += f"_rank_{self._group_rank % self._group_world_size}"
        return self._elastic.configure(store, rank, world_size, self._timeout, self._global_ranks, name)

    def abort(self, errored: bool = True) -> None:
        """End what goes on, on all ranks, until the group is configured again.

        Not so before a quorum, which is not ``errored``: the ranks end what they have left once all have come.
        """
        if not errored:
            self._pg = None
            return
        self._elastic.abort("abort() was called on the process group")
        super().abort(errored)

    def shutdown(self) -> None:
        """End this rank's part, after what was started."""
        super().shutdown()
        self._elastic.shutdown()

    def errored(self) -> Any:
        """Return an error if the group has to be configured again."""
        return self._elastic.errored()

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the longest time of a quorum to form, and of operations without progress."""
        super().set_timeout(timeout)
        self._elastic.set_timeout(timeout)

    def getBackendName(self) -> str:
        """Return ``torchft-roundelay``."""
        return "torchft-roundelay"
