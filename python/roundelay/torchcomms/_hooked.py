"""What backends and process groups that are communicators have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._comm import TorchComm


class HookedComm:
    """The part of a backend, or of a process group, that is answered by its communicator, ``hooked``."""

    hooked: TorchComm

    def get_comm(self) -> TorchComm:
        """Return the communicator."""
        return self.hooked

    def getBackendName(self) -> str:
        """Return the name of the communicator's backend."""
        return self.hooked.get_backend()

    def abort(self) -> None:
        """End the communicator on all ranks."""
        self.hooked.abort()

    def shutdown(self) -> None:
        """Finalize the communicator; a second call does nothing."""
        self.hooked._finalize_for_group()
