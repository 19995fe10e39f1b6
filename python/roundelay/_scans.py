"""Prefix reductions of a communicator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, overload

from roundelay._buffers import Array, view
from roundelay._collectives import Collectives
from roundelay._options import RedOp
from roundelay.work import Work

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from roundelay._options import CallOptions, Options

__all__ = ["Scans"]


class Scans(Collectives):
    """The part of ``Communicator`` by which a rank gets the reduction of the ranks up to it.

    Ranks are reduced in ascending order, in groups that the algorithm chooses. The operators ``"avg"`` and
    ``premul_sum`` are refused, since results are of different numbers of ranks.
    """

    __slots__ = ()

    @overload
    def scan(
        self, data: Array, op: RedOp = "sum", *, async_op: Literal[True], **options: Unpack[CallOptions]
    ) -> Work: ...

    @overload
    def scan(self, data: Array, op: RedOp = "sum", **options: Unpack[Options]) -> Work | None: ...

    def scan(self, data: Array, op: RedOp = "sum", **options: Unpack[Options]) -> Work | None:
        """Reduce the buffers of the ranks up to this one, its own included, in place."""
        seen = view(data, "data", True)
        return self._run("scan", seen[0], None, [seen], op, 0, options)

    @overload
    def scan_into(
        self, output: Array, input: Array, op: RedOp = "sum", *, async_op: Literal[True], **options: Unpack[CallOptions]
    ) -> Work: ...

    @overload
    def scan_into(
        self, output: Array, input: Array, op: RedOp = "sum", **options: Unpack[Options]
    ) -> Work | None: ...

    def scan_into(self, output: Array, input: Array, op: RedOp = "sum", **options: Unpack[Options]) -> Work | None:
        """Reduce the ``input`` of the ranks up to this one into its ``output``, of as many elements."""
        return self._pair("scan", output, input, op, 0, options)

    @overload
    def exscan(
        self, data: Array, op: RedOp = "sum", *, async_op: Literal[True], **options: Unpack[CallOptions]
    ) -> Work: ...

    @overload
    def exscan(self, data: Array, op: RedOp = "sum", **options: Unpack[Options]) -> Work | None: ...

    def exscan(self, data: Array, op: RedOp = "sum", **options: Unpack[Options]) -> Work | None:
        """Reduce the buffers of the ranks before this one, in place; that of rank 0 is left as it is."""
        seen = view(data, "data", True)
        return self._run("exscan", seen[0], None, [seen], op, 0, options)

    @overload
    def exscan_into(
        self, output: Array, input: Array, op: RedOp = "sum", *, async_op: Literal[True], **options: Unpack[CallOptions]
    ) -> Work: ...

    @overload
    def exscan_into(
        self, output: Array, input: Array, op: RedOp = "sum", **options: Unpack[Options]
    ) -> Work | None: ...

    def exscan_into(self, output: Array, input: Array, op: RedOp = "sum", **options: Unpack[Options]) -> Work | None:
        """Reduce the ``input`` of the ranks before this one into its ``output``; that of rank 0 is left as it is."""
        return self._pair("exscan", output, input, op, 0, options)
