"""The communicator: one rank's handle on the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, overload

from roundelay._buffers import Array, mapped, view
from roundelay._core import apart
from roundelay._options import Op, whole
from roundelay._scans import Scans
from roundelay.batch import Batch
from roundelay.errors import RefusedError, UsageError
from roundelay.window import Right, Window, window
from roundelay.work import Work

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from roundelay._algorithm import Algorithm
    from roundelay._options import CallOptions, Options

__all__ = ["Array", "Communicator"]


class Communicator(Scans):
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
    further. ``OperationTimeoutError``, ``LostRankError``, ``MismatchError`` and ``AbortedError`` end it on all ranks.
    """

    __slots__ = ()

    # Single ranks -------------------------------------------------------------------------------

    @overload
    def send(
        self, data: Array, dst: int, tag: int = 0, *, async_op: Literal[True], **options: Unpack[CallOptions]
    ) -> Work: ...

    @overload
    def send(self, data: Array, dst: int, tag: int = 0, **options: Unpack[Options]) -> Work | None: ...

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

    @overload
    def recv(
        self,
        data: Array,
        src: int | None = None,
        tag: int = 0,
        *,
        async_op: Literal[True],
        **options: Unpack[CallOptions],
    ) -> Work: ...

    @overload
    def recv(
        self,
        data: Array,
        src: int | None = None,
        tag: int = 0,
        *,
        async_op: Literal[False] = False,
        **options: Unpack[CallOptions],
    ) -> int | None: ...

    @overload
    def recv(
        self, data: Array, src: int | None = None, tag: int = 0, **options: Unpack[Options]
    ) -> Work | int | None: ...

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
        return mapped(self._native.alloc(whole(nbytes, "nbytes", "bytes are counted from 0")))

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

    @overload
    def run(
        self,
        algorithm: Algorithm,
        data: Array,
        op: Op = "sum",
        *,
        async_op: Literal[True],
        **options: Unpack[CallOptions],
    ) -> Work: ...

    @overload
    def run(self, algorithm: Algorithm, data: Array, op: Op = "sum", **options: Unpack[Options]) -> Work | None: ...

    def run(self, algorithm: Algorithm, data: Array, op: Op = "sum", **options: Unpack[Options]) -> Work | None:
        """Run an algorithm in place, instead of the one that would be chosen.

        It is proved at this number of ranks the first time. Raises ``RefusedError`` with the diagnostics if it is
        wrong.
        """
        seen = view(data, "data", True)
        try:
            return self._run(algorithm._native, seen[0], None, [seen], op, 0, options)
        except RefusedError as error:
            raise algorithm._refused(error) from None

    @overload
    def run_into(
        self,
        algorithm: Algorithm,
        output: Array,
        input: Array,
        op: Op = "sum",
        *,
        async_op: Literal[True],
        **options: Unpack[CallOptions],
    ) -> Work: ...

    @overload
    def run_into(
        self, algorithm: Algorithm, output: Array, input: Array, op: Op = "sum", **options: Unpack[Options]
    ) -> Work | None: ...

    def run_into(
        self, algorithm: Algorithm, output: Array, input: Array, op: Op = "sum", **options: Unpack[Options]
    ) -> Work | None:
        """Run an algorithm from ``input`` to ``output``, as ``run``."""
        written, read = view(output, "output", True), view(input, "input", False)
        apart([written], [read])
        try:
            return self._run(algorithm._native, written[0], read[0], [written, read], op, 0, options)
        except RefusedError as error:
            raise algorithm._refused(error) from None
