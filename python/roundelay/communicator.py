"""The communicator: one rank's handle on the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from roundelay._buffers import View, mapped, view
from roundelay._core import Core, apart
from roundelay._options import Op, RedOp, reduction
from roundelay.batch import Batch
from roundelay.errors import UsageError
from roundelay.window import Right, Window, window
from roundelay.work import Work

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from roundelay._options import Options
    from roundelay._algorithm import Algorithm

__all__ = ["Array", "Communicator"]

Array: TypeAlias = object
"""An array, a tensor, or other memory: anything with the buffer protocol or DLPack, contiguous in C's order."""


class Communicator(Core):
    """One rank's handle on the others. All ranks make the same calls in the same order; any thread may make them.

    Make one by ``init``, ``join`` or ``local``.

    A buffer is an array, a tensor or other memory with the buffer protocol or DLPack, contiguous in C's order, and
    writable where the call writes it. Shapes mean nothing, only numbers of elements. The types are float16, bfloat16,
    float32, float64, int8, uint8, int32, uint32, int64, uint64 and bool; complex64 and complex128, for which there
    are no products and no order; and for copies int16, uint16 and the float8 types too. All buffers of a call have
    the same type, and those that are written lie apart from the others.

    ``op`` is ``"sum"``, ``"prod"``, ``"min"``, ``"max"``, ``"avg"``, ``"and"``, ``"or"``, ``"xor"``, or
    ``roundelay.premul_sum(factor)``.

    Every operation takes the keywords of ``Options``: ``async_op=True`` starts it in the background and returns a
    ``Work``, else None is returned when the result is there; ``hints=`` and ``timeout=`` (seconds without progress)
    hold for this operation; ``stream=`` is for memory of a GPU, where operations are put into that CUDA stream.

    Operations raise ``UsageError`` and ``UnsupportedError`` before anything has moved: the communicator can be used
    further. ``TimeoutError``, ``LostRankError``, ``MismatchError`` and ``AbortedError`` end it on all ranks.
    """

    __slots__ = ()

    # Every rank with the same buffer ------------------------------------------------------------

    def all_reduce(self, data: Array, op: Op = "sum", **options: Unpack[Options]) -> Work | None:
        """Reduce the buffers of all ranks, in place: ``data`` ends as the result on every rank."""
        seen = view(data, "data", True)
        return self._play("all_reduce", seen[0], None, [seen], op, 0, options)

    def tolerant_all_reduce(self, data: Array, op: RedOp = "sum") -> list[int]:
        """Reduce the buffers of at most 8 ranks, in place, and go on if one of them ends meanwhile.

        All others end with the same result, to the bit, and return the same ranks, whose contributions are in it. If
        one is missing the result holds, and the ranks that are left call ``shrink`` before they go on. ``data`` is
        memory of this host (docs/elastic.md).
        """
        address, dtype, _ = view(data, "data", True)
        return self._native.tolerant_all_reduce(address, reduction(op, dtype)[0])

    def all_reduce_into(self, output: Array, input: Array, op: Op = "sum", **options: Unpack[Options]) -> Work | None:
        """Reduce the ``input`` of all ranks into the ``output`` of every rank, of as many elements."""
        return self._pair("all_reduce", output, input, op, 0, options)

    def reduce(self, data: Array, root: int = 0, op: Op = "sum", **options: Unpack[Options]) -> Work | None:
        """Reduce the buffers of all ranks into that of ``root``, in place.

        What the buffers of other ranks hold afterwards is not specified.
        """
        seen = view(data, "data", True)
        return self._play("reduce", seen[0], None, [seen], op, root, options)

    def reduce_into(
        self, output: Array | None, input: Array, root: int = 0, op: Op = "sum", **options: Unpack[Options]
    ) -> Work | None:
        """Reduce the ``input`` of all ranks into the ``output`` of ``root``; other ranks pass None as output."""
        if self.rank != root:
            output = None
        return self._pair("reduce", output, input, op, root, options, "output" if self.rank == root else None)

    def broadcast(self, data: Array, root: int = 0, **options: Unpack[Options]) -> Work | None:
        """Copy the buffer of ``root`` to all other ranks, in place."""
        seen = view(data, "data", True)
        return self._play("broadcast", seen[0], None, [seen], None, root, options)

    def barrier(self, **options: Unpack[Options]) -> Work | None:
        """Wait until every rank has come here."""
        return self._play("barrier", None, None, [], None, 0, options)

    # A block of each rank -----------------------------------------------------------------------

    def all_gather(self, outputs: Sequence[Array], input: Array, **options: Unpack[Options]) -> Work | None:
        """Copy rank r's ``input`` into ``outputs[r]`` of every rank; all have as many elements."""
        written, read = self._views(outputs, "outputs", True), view(input, "input", False)
        apart(written, [read])
        return self._play("all_gather", _addresses(written), read[0], [*written, read], None, 0, options)

    def all_gather_single(self, output: Array, input: Array, **options: Unpack[Options]) -> Work | None:
        """Copy rank r's ``input`` to block r of every rank's ``output``, which has ``size`` blocks of its length."""
        return self._pair("all_gather", output, input, None, 0, options)

    def all_gather_v(
        self, output: Array, input: Array, counts: Sequence[int], **options: Unpack[Options]
    ) -> Work | None:
        """Copy rank r's ``input``, of ``counts[r]`` elements, behind those of the ranks before it in ``output``.

        ``counts`` is the same on all ranks.
        """
        written, read = view(output, "output", True), view(input, "input", False)
        apart([written], [read])
        cut = self._cut(written, counts, "counts")
        return self._play("all_gather", cut, read[0], [written, read], None, 0, options)

    def reduce_scatter(
        self, output: Array, inputs: Sequence[Array], op: Op = "sum", **options: Unpack[Options]
    ) -> Work | None:
        """Reduce ``inputs[r]`` of all ranks into the ``output`` of rank r; all have as many elements."""
        written, read = view(output, "output", True), self._views(inputs, "inputs", False)
        apart([written], read)
        return self._play("reduce_scatter", written[0], _addresses(read), [written, *read], op, 0, options)

    def reduce_scatter_single(
        self, output: Array, input: Array, op: Op = "sum", **options: Unpack[Options]
    ) -> Work | None:
        """Reduce block r of the ``input`` of all ranks into the ``output`` of rank r.

        ``input`` has ``size`` blocks of the length of ``output``.
        """
        return self._pair("reduce_scatter", output, input, op, 0, options)

    def reduce_scatter_v(
        self, output: Array, input: Array, counts: Sequence[int], op: Op = "sum", **options: Unpack[Options]
    ) -> Work | None:
        """Reduce the block of rank r, ``counts[r]`` elements of the ``input`` of all ranks, into its ``output``.

        ``counts`` is the same on all ranks.
        """
        written, read = view(output, "output", True), view(input, "input", False)
        apart([written], [read])
        cut = self._cut(read, counts, "counts")
        return self._play("reduce_scatter", written[0], cut, [written, read], op, 0, options)

    def all_to_all(
        self, outputs: Sequence[Array], inputs: Sequence[Array], **options: Unpack[Options]
    ) -> Work | None:
        """Copy ``inputs[p]`` of rank r into ``outputs[r]`` of rank p; all have as many elements."""
        written, read = self._views(outputs, "outputs", True), self._views(inputs, "inputs", False)
        apart(written, read)
        return self._play(
            "all_to_all", _addresses(written), _addresses(read), [*written, *read], None, 0, options
        )

    def all_to_all_single(self, output: Array, input: Array, **options: Unpack[Options]) -> Work | None:
        """Copy block p of rank r's ``input`` to block r of rank p's ``output``; both have ``size`` equal blocks."""
        return self._pair("all_to_all", output, input, None, 0, options)

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
        return self._play("all_to_all", cut, blocks, [written, read], None, 0, options)

    # From and to a root -------------------------------------------------------------------------

    def gather(
        self, outputs: Sequence[Array] | None, input: Array, root: int = 0, **options: Unpack[Options]
    ) -> Work | None:
        """Copy rank r's ``input`` into ``outputs[r]`` of ``root``; other ranks pass None as outputs."""
        read = view(input, "input", False)
        written = self._rooted(outputs, "outputs", True, root)
        apart(written, [read])
        return self._play("gather", _addresses(written), read[0], [*written, read], None, root, options)

    def gather_single(
        self, output: Array | None, input: Array, root: int = 0, **options: Unpack[Options]
    ) -> Work | None:
        """Copy rank r's ``input`` to block r of the ``output`` of ``root``; other ranks pass None as output."""
        if self.rank != root:
            output = None
        return self._pair("gather", output, input, None, root, options, "output" if self.rank == root else None)

    def scatter(
        self, output: Array, inputs: Sequence[Array] | None, root: int = 0, **options: Unpack[Options]
    ) -> Work | None:
        """Copy ``inputs[r]`` of ``root`` into the ``output`` of rank r; other ranks pass None as inputs."""
        written = view(output, "output", True)
        read = self._rooted(inputs, "inputs", False, root)
        apart([written], read)
        return self._play("scatter", written[0], _addresses(read), [written, *read], None, root, options)

    def scatter_single(
        self, output: Array, input: Array | None, root: int = 0, **options: Unpack[Options]
    ) -> Work | None:
        """Copy block r of the ``input`` of ``root`` into the ``output`` of rank r; other ranks pass None as input."""
        if self.rank != root:
            input = None
        return self._pair("scatter", output, input, None, root, options, "input" if self.rank == root else None)

    # Single ranks -------------------------------------------------------------------------------

    def send(self, data: Array, dst: int, tag: int = 0, **options: Unpack[Options]) -> Work | None:
        """Send a buffer to rank ``dst``, which receives as many elements of the same type with the same tag.

        Messages with tags move beside all other operations, and may be sent and received in any order and by any
        thread; those of one rank with one tag are received in the order in which they were sent. Memory of a GPU is
        sent as a batch of one, with tag 0.
        """
        seen = view(data, "data", False)
        if seen[0][3]:
            return self._on_device(self.batch().send(data, dst), tag, options)
        timeout, kept = self._message_options(options, seen)
        work = self._native.send(seen[0], self._peer(dst, "dst"), self._tag(tag), timeout, kept)
        return None if work is None else Work(work)

    def recv(
        self, data: Array, src: int | None = None, tag: int = 0, **options: Unpack[Options]
    ) -> Work | int | None:
        """Receive the first message with this tag from rank ``src``, from any without; return the rank that sent it.

        The message has as many elements and the same type. With ``async_op=True`` returns the operation, whose
        ``source()`` is that rank once it has ended.
        """
        seen = view(data, "data", True)
        if seen[0][3]:
            if src is None:
                raise UsageError("`src` is not given: a message to memory of a GPU comes from one rank")
            return self._on_device(self.batch().recv(data, src), tag, options)
        timeout, kept = self._message_options(options, seen)
        peer = None if src is None else self._peer(src, "src")
        source, work = self._native.recv(seen[0], peer, self._tag(tag), timeout, kept)
        return source if work is None else Work(work)

    def _on_device(self, batch: Batch, tag: int, options: Options) -> Work | None:
        if tag:
            raise UsageError(f"`tag` is {tag}: messages with tags move memory of this host only, give 0")
        return batch.run(**options)

    def batch(self) -> Batch:
        """Begin a batch: messages that are sent and received at once."""
        return Batch(self)

    # Memory and windows -------------------------------------------------------------------------

    def alloc(self, nbytes: int) -> memoryview:
        """Allocate memory, zeroed and aligned to a page, that the other ranks of this host map.

        Arrays in it are this rank's as all others are. Operations on them are not copied on the way, and windows of
        them are loads and stores of the peers. The memory is free again when nothing refers to the view any more; it
        may live longer than the communicator. Not collective.

        >>> gradients = numpy.frombuffer(comm.alloc(4 << 20), numpy.float32)
        """
        if nbytes < 0:
            raise UsageError(f"`nbytes` is {nbytes}: bytes are counted from 0")
        return mapped(self._native.alloc(nbytes))

    def window(self, data: Array, *, peers_may: Sequence[Right] = ("read", "write", "atomics")) -> Window:
        """Make a window of an array of each rank: memory that the other ranks put to and get from. Collective.

        All arrays have the same type, their lengths may differ, and they begin at a multiple of 8 bytes. The array
        lives until the window is freed.

        On a communicator of ``cuda`` the array may be on this rank's GPU: a tensor, or what speaks DLPack, in memory
        of ``cudaMalloc``. All are of one length then, give all rights, and live until the communicator is shut down,
        for ranks of a host map them. Raises ``UsageError`` without GPUs or if lengths differ, ``UnsupportedError`` if a
        rank has no GPU, and ``CudaError`` if the memory cannot be shared.
        """
        return window(self._native, data, peers_may)

    # Algorithms ---------------------------------------------------------------------------------

    def run(self, algorithm: Algorithm, data: Array, op: Op = "sum", **options: Unpack[Options]) -> Work | None:
        """Play an algorithm in place, instead of the one that would be chosen.

        It is proved at this number of ranks the first time. Raises ``RefusedError`` with the diagnostics if it is
        wrong.
        """
        seen = view(data, "data", True)
        return self._play(algorithm._native, seen[0], None, [seen], op, 0, options)

    def run_into(
        self, algorithm: Algorithm, output: Array, input: Array, op: Op = "sum", **options: Unpack[Options]
    ) -> Work | None:
        """Play an algorithm from ``input`` to ``output``, as ``run``."""
        written, read = view(output, "output", True), view(input, "input", False)
        apart([written], [read])
        return self._play(algorithm._native, written[0], read[0], [written, read], op, 0, options)

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
        """Play a collective from one buffer to another; on some ranks there is only one of them."""
        if needed is not None and (output if needed == "output" else input) is None:
            raise UsageError(f"`{needed}` is None on rank {root}, the root, which needs it")
        written = None if output is None else view(output, "output", True)
        read = None if input is None else view(input, "input", False)
        if written is None or read is None:
            seen = written or read
            assert seen is not None
            return self._play(
                collective, written and written[0], read and read[0], [seen], op, root, options
            )
        apart([written], [read])
        return self._play(collective, written[0], read[0], [written, read], op, root, options)

    def _rooted(self, data: Sequence[Array] | None, name: str, written: bool, root: int) -> list[View]:
        """Look at a list that only the root has."""
        if self.rank != root:
            return []
        if data is None:
            raise UsageError(f"`{name}` is None on rank {root}, the root, which needs it")
        return self._views(data, name, written)

    def _cut(
        self, seen: View, counts: Sequence[int], name: str
    ) -> tuple[tuple[int, int, str, bool], list[int]]:
        """Return a buffer with the lengths of its blocks."""
        lengths, scale = [int(count) for count in counts], seen[1].scale
        if len(lengths) != self.size or any(count < 0 for count in lengths):
            raise UsageError(f"`{name}` is {lengths}: give {self.size} counts of elements, one for each rank")
        have = seen[0][1] // scale
        if sum(lengths) != have:
            raise UsageError(f"`{name}` adds up to {sum(lengths)} elements, and the buffer has {have}")
        return seen[0], [count * scale for count in lengths]


def _addresses(views: list[View]) -> list[tuple[int, int, str, bool]]:
    return [seen[0] for seen in views]
