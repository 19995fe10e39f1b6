"""Batches of sends and receives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ._hooks import OpName, PreHookArgs
from ._types import BatchP2POptions, P2POp, P2POpType

if TYPE_CHECKING:
    from torch import Tensor

    from ._comm import TorchComm
    from ._engine import Engine, Options
    from ._work import TorchWork


class BatchSendRecv:
    """Sends and receives that are issued at once: no order among them can block them."""

    ops: list[P2POp]
    """The messages of the batch."""

    def __init__(self, comm: TorchComm) -> None:
        self._comm = comm
        self.ops = []

    def send(self, tensor: Tensor, dst: int) -> None:
        """Add a message to rank ``dst``."""
        self.ops.append(P2POp(P2POpType.SEND, tensor, self._comm._peer(dst, "dst")))

    def recv(self, tensor: Tensor, src: int) -> None:
        """Add a message from rank ``src``."""
        self.ops.append(P2POp(P2POpType.RECV, tensor, self._comm._peer(src, "src")))

    def issue(self, async_op: bool, options: BatchP2POptions | None = None) -> TorchWork:
        """Issue all messages; the batch keeps them, and may be issued again.

        Raises ``UsageError`` if there is none.
        """
        if not self.ops:
            raise UsageError("Cannot issue empty batch operation: add messages by send and recv")
        options = options or BatchP2POptions()
        args = PreHookArgs(num_ops=len(self.ops), async_op=async_op)
        messages = [(each.tensor, each.peer, each.type is P2POpType.SEND) for each in self.ops]
        return self._comm._run(OpName.batch_op_issue, _issue, args, options.hints, options.timeout, messages)


def _issue(engine: Engine, messages: Any, opts: Options) -> Any:
    return engine.messages(messages, opts)
