"""A process group for torchft: one communicator, which goes on from quorum to quorum.

>>> from roundelay.torch.torchft import ProcessGroupRoundelay
>>> manager = torchft.Manager(pg=ProcessGroupRoundelay(timeout=timedelta(seconds=10)), …)

Importing this module loads torchft. See ``docs/elastic.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from torchft.process_group import (  # type: ignore[import-not-found, unused-ignore]
    ProcessGroupWrapper,
    create_store_client,
)

from ._elastic import Elastic
from ._options import Options, hints_of

__all__ = ["ProcessGroupRoundelay"]


class ProcessGroupRoundelay(ProcessGroupWrapper):  # type: ignore[misc, unused-ignore]
    """A process group that torchft configures for each quorum.

    ``timeout`` is the longest time that :meth:`configure` takes, and that operations take without progress; ``hints``
    are those of ``docs/hints.md``. It serves tensors on the CPU and on GPUs.
    """

    def __init__(
        self, timeout: timedelta = timedelta(seconds=60), hints: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(timeout)
        self._elastic = Elastic(hints_of(Options(hints)))

    def configure(
        self,
        store_addr: str,
        replica_id: str,
        rank: int,
        world_size: int,
        quorum_id: int | None = None,
        group_rank: int | None = None,
        group_world_size: int | None = None,
        global_ranks: list[int] | None = None,
    ) -> None:
        """Go on as a rank of a quorum; ``store_addr`` has a prefix that no quorum had.

        Survivors keep their communicator, after errors too; newcomers come to them. If it raises, as where a rank of
        the quorum is gone, the next quorum may be configured.
        """
        self._replica_id, self._rank, self._quorum_id = replica_id, rank, quorum_id
        self._group_rank, self._group_world_size, self._global_ranks = group_rank, group_world_size, global_ranks
        self._pg = None
        store = create_store_client(store_addr, timeout=self._timeout)
        name = f"torchft_quorum_{quorum_id}"
        if group_rank is not None and group_world_size:
            name += f"_rank_{group_rank % group_world_size}"
        self._pg = self._elastic.configure(store, rank, world_size, self._timeout, global_ranks, name)

    def abort(self, errored: bool = True) -> None:
        """End what goes on, on all ranks, until the group is configured again."""
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
        """Set the longest time of :meth:`configure`, and of operations without progress."""
        super().set_timeout(timeout)
        self._elastic.set_timeout(timeout)

    def getBackendName(self) -> str:
        """Return ``torchft-roundelay``."""
        return "torchft-roundelay"
