"""Collectives of a communicator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, overload

from roundelay._buffers import Array, View, view
from roundelay._core import Core, apart
from roundelay._options import Op, RedOp, reduction, whole
from roundelay.errors import UsageError
from roundelay.work import Work

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from roundelay._options import CallOptions, Options

__all__ = ["Collectives"]


class Collectives(Core):
    """The part of ``Communicator`` that all ranks call together."""

    __slots__ = ()

    # Every rank with the same buffer ------------------------------------------------------------

    @overload
    def all_reduce(
        self, data: Array, op: Op = "sum", *, async_op: Literal[True], **options: Unpack[CallOptions]
    ) -> Work: ...

    @overload
    def all_reduce(self, data: Array, op: Op = "sum", **options: Unpack[Options]) -> Work | None: ...

    def all_reduce(self, data: Array, op: Op = "sum", **options: Unpack[Options]) -> Work | None:
        """Reduce the buffers of all ranks, in place: ``data`` ends as the result on every rank."""
        seen = view(data, "data", True)
        return self._run("all_reduce", seen[0], None, [seen], op, 0, options)

    def tolerant_all_reduce(self, data: Array, op: RedOp = "sum") -> list[int]:
        """Reduce the buffers of at most 8 ranks, in place, and go on if one of them ends meanwhile.

        All others end with the same result, to the bit, and return the same ranks, whose contributions are in it. If
        one is missing the result holds, and the ranks that are left call ``shrink`` before they go on. ``data`` is
        memory of this host (docs/elastic.md).
        """
        address, dtype, _ = view(data, "data", True)
        return self._native.tolerant_all_reduce(address, reduction(op, dtype)[0])

    @overload
    def all_reduce_into(
        self, output: Array, input: Array, op: Op = "sum", *, async_op: Literal[True], **options: Unpack[CallOptions]
    ) -> Work: ...

    @overload
    def all_reduce_into(
        self, output: Array, input: Array, op: Op = "sum", **options: Unpack[Options]
    ) -> Work | None: ...

    def all_reduce_into(self, output: Array, input: Array, op: Op = "sum", **options: Unpack[Options]) -> Work | None:
        """Reduce the ``input`` of all ranks into the ``output`` of every rank, of as many elements."""
        return self._pair("all_reduce", output, input, op, 0, options)

    @overload
    def reduce(
        self, data: Array, root: int = 0, op: Op = "sum", *, async_op: Literal[True], **options: Unpack[CallOptions]
    ) -> Work: ...

    @overload
    def reduce(self, data: Array, root: int = 0, op: Op = "sum", **options: Unpack[Options]) -> Work | None: ...

    def reduce(self, data: Array, root: int = 0, op: Op = "sum", **options: Unpack[Options]) -> Work | None:
        """Reduce the buffers of all ranks into that of ``root``, in place.

        What the buffers of other ranks hold afterwards is not specified.
        """
        seen = view(data, "data", True)
        return self._run("reduce", seen[0], None, [seen], op, root, options)

    @overload
    def reduce_into(
        self,
        output: Array | None,
        input: Array,
        root: int = 0,
        op: Op = "sum",
        *,
        async_op: Literal[True],
        **options: Unpack[CallOptions],
    ) -> Work: ...

    @overload
    def reduce_into(
        self, output: Array | None, input: Array, root: int = 0, op: Op = "sum", **options: Unpack[Options]
    ) -> Work | None: ...

    def reduce_into(
        self, output: Array | None, input: Array, root: int = 0, op: Op = "sum", **options: Unpack[Options]
    ) -> Work | None:
        """Reduce the ``input`` of all ranks into the ``output`` of ``root``; other ranks pass None as output."""
        root = self._peer(root, "root")
        if self.rank != root:
            output = None
        return self._pair("reduce", output, input, op, root, options, "output" if self.rank == root else None)

    @overload
    def broadcast(
        self, data: Array, root: int = 0, *, async_op: Literal[True], **options: Unpack[CallOptions]
    ) -> Work: ...

    @overload
    def broadcast(self, data: Array, root: int = 0, **options: Unpack[Options]) -> Work | None: ...

    def broadcast(self, data: Array, root: int = 0, **options: Unpack[Options]) -> Work | None:
        """Copy the buffer of ``root`` to all other ranks, in place."""
        seen = view(data, "data", True)
        return self._run("broadcast", seen[0], None, [seen], None, root, options)

    @overload
    def barrier(self, *, async_op: Literal[True], **options: Unpack[CallOptions]) -> Work: ...

    @overload
    def barrier(self, **options: Unpack[Options]) -> Work | None: ...

    def barrier(self, **options: Unpack[Options]) -> Work | None:
        """Wait until every rank has come here."""
        return self._run("barrier", None, None, [], None, 0, options)

    # A block of each rank -----------------------------------------------------------------------

    @overload
    def all_gather(
        self, outputs: Sequence[Array], input: Array, *, async_op: Literal[True], **options: Unpack[CallOptions]
    ) -> Work: ...

    @overload
    def all_gather(self, outputs: Sequence[Array], input: Array, **options: Unpack[Options]) -> Work | None: ...

    def all_gather(self, outputs: Sequence[Array], input: Array, **options: Unpack[Options]) -> Work | None:
        """Copy rank r's ``input`` into ``outputs[r]`` of every rank; all have as many elements."""
        written, read = self._views(outputs, "outputs", True), view(input, "input", False)
        apart(written, [read])
        return self._run("all_gather", _addresses(written), read[0], [*written, read], None, 0, options)

    @overload
    def all_gather_single(
        self, output: Array, input: Array, *, async_op: Literal[True], **options: Unpack[CallOptions]
    ) -> Work: ...

    @overload
    def all_gather_single(self, output: Array, input: Array, **options: Unpack[Options]) -> Work | None: ...

    def all_gather_single(self, output: Array, input: Array, **options: Unpack[Options]) -> Work | None:
        """Copy rank r's ``input`` to block r of every rank's ``output``, which has ``size`` blocks of its length."""
        return self._pair("all_gather", output, input, None, 0, options)

    @overload
    def all_gather_v(
        self,
        output: Array,
        input: Array,
        counts: Sequence[int],
        *,
        async_op: Literal[True],
        **options: Unpack[CallOptions],
    ) -> Work: ...

    @overload
    def all_gather_v(
        self, output: Array, input: Array, counts: Sequence[int], **options: Unpack[Options]
    ) -> Work | None: ...

    def all_gather_v(
        self, output: Array, input: Array, counts: Sequence[int], **options: Unpack[Options]
    ) -> Work | None:
        """Copy rank r's ``input``, of ``counts[r]`` elements, behind those of the ranks before it in ``output``.

        ``counts`` is the same on all ranks.
        """
        written, read = view(output, "output", True), view(input, "input", False)
        apart([written], [read])
        cut = self._cut(written, counts, "counts")
        return self._run("all_gather", cut, read[0], [written, read], None, 0, options)

    @overload
    def reduce_scatter(
        self,
        output: Array,
        inputs: Sequence[Array],
        op: Op = "sum",
        *,
        async_op: Literal[True],
        **options: Unpack[CallOptions],
    ) -> Work: ...

    @overload
    def reduce_scatter(
        self, output: Array, inputs: Sequence[Array], op: Op = "sum", **options: Unpack[Options]
    ) -> Work | None: ...

    def reduce_scatter(
        self, output: Array, inputs: Sequence[Array], op: Op = "sum", **options: Unpack[Options]
    ) -> Work | None:
        """Reduce ``inputs[r]`` of all ranks into the ``output`` of rank r; all have as many elements."""
        written, read = view(output, "output", True), self._views(inputs, "inputs", False)
        apart([written], read)
        return self._run("reduce_scatter", written[0], _addresses(read), [written, *read], op, 0, options)

    @overload
    def reduce_scatter_single(
        self, output: Array, input: Array, op: Op = "sum", *, async_op: Literal[True], **options: Unpack[CallOptions]
    ) -> Work: ...

    @overload
    def reduce_scatter_single(
        self, output: Array, input: Array, op: Op = "sum", **options: Unpack[Options]
    ) -> Work | None: ...

    def reduce_scatter_single(
        self, output: Array, input: Array, op: Op = "sum", **options: Unpack[Options]
    ) -> Work | None:
        """Reduce block r of the ``input`` of all ranks into the ``output`` of rank r.

        ``input`` has ``size`` blocks of the length of ``output``.
        """
        return self._pair("reduce_scatter", output, input, op, 0, options)

    @overload
    def reduce_scatter_v(
        self,
        output: Array,
        input: Array,
        counts: Sequence[int],
        op: Op = "sum",
        *,
        async_op: Literal[True],
        **options: Unpack[CallOptions],
    ) -> Work: ...

    @overload
    def reduce_scatter_v(
        self, output: Array, input: Array, counts: Sequence[int], op: Op = "sum", **options: Unpack[Options]
    ) -> Work | None: ...

    def reduce_scatter_v(
        self, output: Array, input: Array, counts: Sequence[int], op: Op = "sum", **options: Unpack[Options]
    ) -> Work | None:
        """Reduce the block of rank r, ``counts[r]`` elements of the ``input`` of all ranks, into its ``output``.

        ``counts`` is the same on all ranks.
        """
        written, read = view(output, "output", True), view(input, "input", False)
        apart([written], [read])
        cut = self._cut(read, counts, "counts")
        return self._run("reduce_scatter", written[0], cut, [written, read], op, 0, options)

    @overload
    def all_to_all(
        self,
        outputs: Sequence[Array],
        inputs: Sequence[Array],
        *,
        async_op: Literal[True],
        **options: Unpack[CallOptions],
    ) -> Work: ...

    @overload
    def all_to_all(
        self, outputs: Sequence[Array], inputs: Sequence[Array], **options: Unpack[Options]
    ) -> Work | None: ...

    def all_to_all(
        self, outputs: Sequence[Array], inputs: Sequence[Array], **options: Unpack[Options]
    ) -> Work | None:
        """Copy ``inputs[p]`` of rank r into ``outputs[r]`` of rank p; all have as many elements."""
        written, read = self._views(outputs, "outputs", True), self._views(inputs, "inputs", False)
        apart(written, read)
        return self._run(
            "all_to_all", _addresses(written), _addresses(read), [*written, *read], None, 0, options
        )

    @overload
    def all_to_all_single(
        self, output: Array, input: Array, *, async_op: Literal[True], **options: Unpack[CallOptions]
    ) -> Work: ...

    @overload
    def all_to_all_single(self, output: Array, input: Array, **options: Unpack[Options]) -> Work | None: ...

    def all_to_all_single(self, output: Array, input: Array, **options: Unpack[Options]) -> Work | None:
        """Copy block p of rank r's ``input`` to block r of rank p's ``output``; both have ``size`` equal blocks."""
        return self._pair("all_to_all", output, input, None, 0, options)

    @overload
    def all_to_all_v(
        self,
        output: Array,
        output_counts: Sequence[int],
        input: Array,
        input_counts: Sequence[int],
        *,
        async_op: Literal[True],
        **options: Unpack[CallOptions],
    ) -> Work: ...

    @overload
    def all_to_all_v(
        self,
        output: Array,
        output_counts: Sequence[int],
        input: Array,
        input_counts: Sequence[int],
        **options: Unpack[Options],
    ) -> Work | None: ...

    def all_to_all_v(
        self,
        output: Array,
        output_counts: Sequence[int],
        input: Array,
        input_counts: Sequence[int],
        **options: Unpack[Options],
    ) -> Work | None:
        """Copy block p of rank r's ``input`` to block r of rank p's ``output``, with blocks of unequal length.

        Block r of the output has ``output_counts[r]`` elements, block p of the input ``input_counts[p]``. What rank r
        sends to rank p is what p expects of r.
        """
        written, read = view(output, "output", True), view(input, "input", False)
        apart([written], [read])
        cut = self._cut(written, output_counts, "output_counts")
        blocks = self._cut(read, input_counts, "input_counts")
        return self._run("all_to_all", cut, blocks, [written, read], None, 0, options)

    # From and to a root -------------------------------------------------------------------------

    @overload
    def gather(
        self,
        outputs: Sequence[Array] | None,
        input: Array,
        root: int = 0,
        *,
        async_op: Literal[True],
        **options: Unpack[CallOptions],
    ) -> Work: ...

    @overload
    def gather(
        self, outputs: Sequence[Array] | None, input: Array, root: int = 0, **options: Unpack[Options]
    ) -> Work | None: ...

    def gather(
        self, outputs: Sequence[Array] | None, input: Array, root: int = 0, **options: Unpack[Options]
    ) -> Work | None:
        """Copy rank r's ``input`` into ``outputs[r]`` of ``root``; other ranks pass None as outputs."""
        read = view(input, "input", False)
        written = self._rooted(outputs, "outputs", True, root)
        apart(written, [read])
        return self._run("gather", _addresses(written), read[0], [*written, read], None, root, options)

    @overload
    def gather_single(
        self,
        output: Array | None,
        input: Array,
        root: int = 0,
        *,
        async_op: Literal[True],
        **options: Unpack[CallOptions],
    ) -> Work: ...

    @overload
    def gather_single(
        self, output: Array | None, input: Array, root: int = 0, **options: Unpack[Options]
    ) -> Work | None: ...

    def gather_single(
        self, output: Array | None, input: Array, root: int = 0, **options: Unpack[Options]
    ) -> Work | None:
        """Copy rank r's ``input`` to block r of the ``output`` of ``root``; other ranks pass None as output."""
        root = self._peer(root, "root")
        if self.rank != root:
            output = None
        return self._pair("gather", output, input, None, root, options, "output" if self.rank == root else None)

    @overload
    def scatter(
        self,
        output: Array,
        inputs: Sequence[Array] | None,
        root: int = 0,
        *,
        async_op: Literal[True],
        **options: Unpack[CallOptions],
    ) -> Work: ...

    @overload
    def scatter(
        self, output: Array, inputs: Sequence[Array] | None, root: int = 0, **options: Unpack[Options]
    ) -> Work | None: ...

    def scatter(
        self, output: Array, inputs: Sequence[Array] | None, root: int = 0, **options: Unpack[Options]
    ) -> Work | None:
        """Copy ``inputs[r]`` of ``root`` into the ``output`` of rank r; other ranks pass None as inputs."""
        written = view(output, "output", True)
        read = self._rooted(inputs, "inputs", False, root)
        apart([written], read)
        return self._run("scatter", written[0], _addresses(read), [written, *read], None, root, options)

    @overload
    def scatter_single(
        self,
        output: Array,
        input: Array | None,
        root: int = 0,
        *,
        async_op: Literal[True],
        **options: Unpack[CallOptions],
    ) -> Work: ...

    @overload
    def scatter_single(
        self, output: Array, input: Array | None, root: int = 0, **options: Unpack[Options]
    ) -> Work | None: ...

    def scatter_single(
        self, output: Array, input: Array | None, root: int = 0, **options: Unpack[Options]
    ) -> Work | None:
        """Copy block r of the ``input`` of ``root`` into the ``output`` of rank r; other ranks pass None as input."""
        root = self._peer(root, "root")
        if self.rank != root:
            input = None
        return self._pair("scatter", output, input, None, root, options, "input" if self.rank == root else None)

    # What calls have in common ------------------------------------------------------------------

    def _pair(
        self,
        collective: str,
        output: Array | None,
        input: Array | None,
        op: Op | None,
        root: int,
        options: Options,
        needed: str | None = None,
    ) -> Work | None:
        """Run a collective from one buffer to another; on some ranks there is only one of them."""
        if needed is not None and (output if needed == "output" else input) is None:
            raise UsageError(f"`{needed}` is None on rank {root}, the root, which needs it")
        written = None if output is None else view(output, "output", True)
        read = None if input is None else view(input, "input", False)
        if written is None or read is None:
            seen = written or read
            assert seen is not None
            return self._run(
                collective, written and written[0], read and read[0], [seen], op, root, options
            )
        apart([written], [read])
        return self._run(collective, written[0], read[0], [written, read], op, root, options)

    def _rooted(self, data: Sequence[Array] | None, name: str, written: bool, root: int) -> list[View]:
        """Look at a list that only the root has."""
        if self.rank != self._peer(root, "root"):
            return []
        if data is None:
            raise UsageError(f"`{name}` is None on rank {root}, the root, which needs it")
        return self._views(data, name, written)

    def _cut(
        self, seen: View, counts: Sequence[int], name: str
    ) -> tuple[tuple[int, int, str, bool], list[int]]:
        """Return a buffer with the lengths of its blocks."""
        wanted, scale = f"give {self.size} counts of elements, one for each rank", seen[1].scale
        lengths = [whole(count, f"{name}[{at}]", wanted) for at, count in enumerate(counts)]
        if len(lengths) != self.size:
            raise UsageError(f"`{name}` is {lengths}: {wanted}")
        have = seen[0][1] // scale
        if sum(lengths) != have:
            raise UsageError(f"`{name}` adds up to {sum(lengths)} elements, and the buffer has {have}")
        return seen[0], [count * scale for count in lengths]


def _addresses(views: list[View]) -> list[tuple[int, int, str, bool]]:
    return [seen[0] for seen in views]
