"""What communicators are apart from their collectives."""

from __future__ import annotations

import datetime
import json
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from roundelay import _native
from roundelay._buffers import View, owner, view
from roundelay._dtypes import NAMES, DType
from roundelay._ending import watch
from roundelay._options import Hints, Op, Options, pairs, reduction, seconds, stream_of, whole
from roundelay.errors import RefusedError, UsageError
from roundelay.store import Store, share
from roundelay.work import Work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Self, Unpack

    from roundelay._native import Memory
    from roundelay._algorithm import Algorithm

__all__ = ["Choice", "Core"]

_BYTES = NAMES["uint8"]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Choice:
    """The algorithm that a call uses."""

    collective: str
    algorithm: str
    source: str
    """What decided: a hint, its installation, the tuned table, the cost model, …"""

    def __str__(self) -> str:
        return f"{self.collective}.{self.algorithm}, by {self.source}"


class Core:
    """The part of ``Communicator`` that joins, sets, ends and makes calls."""

    __slots__ = ("__weakref__", "_call", "_native", "rank", "size")

    rank: int
    """The number of this rank, from 0 on."""
    size: int
    """The number of ranks."""

    def __init__(self, native: _native.Communicator) -> None:
        self._native = watch(native)
        self._call = native.call
        self.rank = native.rank
        self.size = native.size

    # Joining ------------------------------------------------------------------------------------

    @classmethod
    def init(cls, *, hints: Hints | None = None, timeout: float | datetime.timedelta | None = None) -> Self:
        """Join the job that a launcher started: roundelay's own, torchrun, mpirun, mpiexec, srun.

        The environment says who this rank is and where the others are (docs/running.md). ``hints`` and ``timeout``
        hold for the calls that follow; hints about links are read from ``ROUNDELAY_HINTS``. Raises ``StartError`` if
        the ranks do not come together.
        """
        comm = cls(_native.Communicator.from_env())
        if hints is not None:
            comm.set_hints(hints)
        if timeout is not None:
            comm.set_timeout(timeout)
        return comm

    @classmethod
    def join(
        cls,
        rank: int,
        size: int,
        store: Store,
        *,
        name: str = "world",
        hints: Hints | None = None,
        timeout: float | datetime.timedelta | None = None,
        host: str | None = None,
    ) -> Self:
        """Join ``size`` ranks that share a key-value store, as rank ``rank``.

        ``store`` has ``set(key, bytes)`` and ``get(key)``, as the stores of torch.distributed; one key is used:
        ``roundelay/`` and ``name``, which is to be another one for each communicator on the same store. A ``get``
        that returns None or raises ``KeyError`` is tried again. ``hints`` may be about links too, ``timeout`` in
        seconds holds for joining and for the calls that follow, and ranks that give different names ``host`` are
        treated as on different hosts. Ranks may be threads of one process. Raises ``StartError`` if the ranks do not
        come together; what the store raises is its cause.
        """
        size = whole(size, "size", "give the number of ranks, at least 1", 1)
        rank = whole(rank, "rank", f"the ranks are 0 to {size - 1}", 0, size - 1)
        limit = None if timeout is None else seconds(timeout)
        note = share(store, f"roundelay/{name}", limit)
        given = [] if hints is None else pairs(hints)
        return cls(_native.Communicator.join(rank, size, note, given, limit, host))

    @classmethod
    def alone(cls, *, hints: Hints | None = None, host: str | None = None) -> Self:
        """Make a communicator of this rank alone, for a process that is to come to others by ``reconfigure``.

        ``hints`` and ``host`` as in ``join``; they, and the environment, are to be those of the others.
        """
        return cls(_native.Communicator.alone([] if hints is None else pairs(hints), host))

    @classmethod
    def local(cls, ranks: int) -> list[Self]:
        """Make all ranks of a job whose ranks are threads of this process; give each to a thread of its own."""
        count = whole(ranks, "ranks", "give the number of ranks, at least 1", 1)
        return [cls(native) for native in _native.Communicator.local(count)]

    def split(self, ranks: Sequence[int]) -> Self | None:
        """Make a communicator of some of the ranks, numbered in the order in which ``ranks`` has them.

        Collective: one call makes all parts. Each rank names the ranks of its own part, or none, and gets None then.
        """
        part = self._native.split([self._peer(rank, f"ranks[{at}]") for at, rank in enumerate(ranks)])
        return None if part is None else type(self)(part)

    def cuda(self, device: int | None = None) -> Self:
        """Make a communicator of the same ranks with a GPU each, which takes memory of that GPU. Collective.

        ``device`` is the number of the GPU, as the driver counts for this process; without it, that of the rank modulo
        their number. Raises ``CudaError`` on all ranks if one has none.
        """
        return type(self)(self._native.cuda(device))

    def cuda_mixed(self, has_gpu: bool, device: int | None = None) -> Self:
        """Make a communicator of the same ranks, of which some have a GPU and others have none. Collective.

        Each rank says whether it has one, ``device`` as in ``cuda``, and calls with the memory that it has, of its GPU
        or of its host. If all have one, this is ``cuda``. Else a call on memory of a GPU is made by its host, and
        returns when the result is there; windows of GPU memory raise ``UnsupportedError``, and messages between a rank
        with a GPU and one without go through ``batch``. Raises as ``cuda``.
        """
        if device is not None and not has_gpu:
            raise UsageError(f"`device` is {device}, and `has_gpu` is False: a rank without a GPU names none")
        return type(self)(self._native.cuda_mixed(has_gpu, device))

    # Other ranks --------------------------------------------------------------------------------

    def handle(self) -> str:
        """Return this rank's handle, a short text that the ranks of the next generation must be given.

        It serves for one call of ``reconfigure``, whatever becomes of that.
        """
        return self._native.handle()

    def reconfigure(
        self,
        handles: Sequence[str] | AbstractSet[str],
        *,
        id: str = "",
        timeout: float | datetime.timedelta = 30.0,
    ) -> None:
        """Go on as a rank of a new generation: of exactly the ranks that the handles name.

        Ranks are the places in a list; those of a set are numbered by the runtime, the ranks of the oldest generation
        first. All of them call together, each on a communicator of its own, with the same handles and the same
        ``id``, any text. ``rank`` and ``size`` are others then. Operations that were started end first: call
        ``abort`` if they may wait for a rank that is gone. If it raises, the communicator is what it was before, and
        may try again by new handles (docs/elastic.md).
        """
        ordered = not isinstance(handles, AbstractSet)
        self._native.reconfigure(id, list(handles), ordered, seconds(timeout))
        self.rank, self.size = self._native.rank, self._native.size

    def shrink(self, timeout: float | datetime.timedelta = 30.0) -> None:
        """Go on with the ranks that are left, all of which call it after a call has failed or has lost a rank.

        It waits for them for ``timeout`` at the most; ``rank`` and ``size`` are others then. Raises if another group
        of ranks could go on too (docs/elastic.md).
        """
        self._native.shrink(seconds(timeout))
        self.rank, self.size = self._native.rank, self._native.size

    # Memory -------------------------------------------------------------------------------------

    def suspend(self, *, connections: bool = False) -> None:
        """Give the memory of the communicator back to the system until it is used again. Collective.

        With ``connections`` those for data between hosts go too. What is yours stays: arrays, windows, hints. Messages
        between single ranks must have been received. Calls raise ``UsageError`` meanwhile, or the first one resumes the
        communicator, with the hint ``suspended=resume`` (docs/suspend.md).
        """
        self._native.suspend(connections)

    def resume(self) -> None:
        """Resume a communicator that was suspended. Collective; a barrier if it was not."""
        self._native.resume()

    def memory_stats(self) -> dict[str, int]:
        """Return the memory that this rank holds, in bytes by kind, and ``suspended``: 1 or 0."""
        kinds, suspended = self._native.memory_stats()
        return {**dict(kinds), "suspended": int(suspended)}

    # Settings -----------------------------------------------------------------------------------

    def set_hints(self, hints: Hints) -> None:
        """Set the hints for the calls that follow, in place of those there were; the same on all ranks."""
        self._native.set_hints(pairs(hints))

    def set_timeout(self, timeout: float | datetime.timedelta) -> None:
        """Set the longest time without progress, in seconds; 30 at first."""
        self._native.set_timeout(seconds(timeout))

    def explain(self, collective: str, size: int, dtype: str = "f32", op: str = "sum") -> Choice:
        """Say which algorithm a call on ``size`` bytes would use, and who chose it."""
        known, size = NAMES.get(dtype), whole(size, "size", "give a number of bytes")
        return Choice(*self._native.explain(collective, size, known.native if known else dtype, op))

    def flight(self) -> dict[str, Any]:
        """Return the flight recorder: the latest calls and waits of this rank."""
        return cast("dict[str, Any]", json.loads(self._native.flight()))

    def install(self, algorithm: Algorithm) -> None:
        """Have an algorithm serve all calls of its collective from now on.

        Collective: it takes effect only if all ranks bring the same one. Raises ``RefusedError`` with the diagnostics
        if it is wrong at this number of ranks.
        """
        try:
            self._native.install(algorithm._native)
        except RefusedError as error:
            raise algorithm._refused(error) from None

    def uninstall(self, collective: str) -> bool:
        """Have the algorithm library serve a collective again; return False if nothing was installed. Collective."""
        return self._native.uninstall(collective)

    # The end ------------------------------------------------------------------------------------

    def abort(self, why: str = "abort was called") -> bool:
        """End the communicator on all ranks, at once and from any thread.

        Operations that are pending, or follow, raise ``AbortedError`` on every rank. Return True if none of this rank
        writes to memory of this host any more, and False if one may do so until it has ended, since the system gave
        it no processor for 8 ms. Raises ``UsageError`` in a child that was forked from the rank, and ends nothing.
        """
        return self._native.abort(why)

    @property
    def aborted(self) -> bool:
        """True once any rank has ended the communicator."""
        return self._native.aborted

    def shutdown(self) -> None:
        """End this rank's part, after all operations that were started. A second call does nothing.

        Raises ``UsageError`` in a child that was forked from the rank; the rank goes on.
        """
        self._native.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._native.is_here:
            return  # A forked child leaves the block; its parent, the rank, is still in it.
        if error is not None:
            self.abort(f"rank {self.rank} raised {type(error).__name__}: {error}")
        self.shutdown()

    def __repr__(self) -> str:
        return f"<roundelay.{type(self).__name__}: rank {self.rank} of {self.size}>"

    # Running ------------------------------------------------------------------------------------

    def _run(
        self,
        collective: str | _native.Algorithm,
        output: Memory | None,
        input: Memory | None,
        owners: list[View],
        op: Op | None = None,
        root: int = 0,
        options: Options | None = None,
    ) -> Work | None:
        """Perform or start a collective or an algorithm on buffers that were looked at; without ``op`` it copies."""
        dtype = _same(owners) if len(owners) > 1 else owners[0][1] if owners else _BYTES
        if op is None or (op == "sum" and dtype.ops is None):
            name, factor = "sum", 1.0
        else:
            name, factor = reduction(op, dtype)
        if type(root) is not int or not 0 <= root < self.size:
            root = self._peer(root, "root")
        timeout = given = stream = kept = None
        if options:
            timeout, given, kept = _options(options, owners)
        if owners and owners[0][0][3]:
            stream = stream_of(options.get("stream") if options else None, owner(owners[0]))
        if isinstance(collective, str):
            work = self._call(collective, output, input, name, factor, root, timeout, given, stream, kept)
        else:
            work = self._native.run(collective, output, input, name, factor, timeout, given, stream, kept)
        return None if work is None else Work(work)

    def _messages(self, messages: list[tuple[View, int, bool]], options: Options) -> Work | None:
        owners = [message[0] for message in messages]
        timeout, given, kept = _options(options, owners)
        if given is not None:
            raise UsageError("`hints` is given: messages between single ranks take none")
        stream = None
        if owners and owners[0][0][3]:
            stream = stream_of(options.get("stream"), owner(owners[0]))
        work = self._native.messages([(v[0], peer, sent) for v, peer, sent in messages], timeout, stream, kept)
        return None if work is None else Work(work)

    def _message_options(self, options: Options, seen: View) -> tuple[float | None, object]:
        timeout, given, kept = _options(options, [seen])
        if given is not None:
            raise UsageError("`hints` is given: messages between single ranks take none")
        return timeout, kept

    def _peer(self, peer: int, name: str) -> int:
        return whole(peer, name, f"the ranks are 0 to {self.size - 1}", 0, self.size - 1)

    def _tag(self, tag: int) -> int:
        return whole(tag, "tag", "give a whole number from 0 to 2**64 - 1", 0, 2**64 - 1)

    def _views(self, data: Sequence[object], name: str, written: bool) -> list[View]:
        """Look at a list with a buffer for each rank."""
        if isinstance(data, (str, bytes, bytearray, memoryview)) or not hasattr(data, "__len__"):
            raise UsageError(f"`{name}` is a {type(data).__name__}: give a list of {self.size} buffers")
        if len(data) != self.size:
            raise UsageError(f"`{name}` has {len(data)} buffers: give {self.size}, one for each rank")
        return [view(item, f"{name}[{i}]", written) for i, item in enumerate(data)]


def _options(options: Options, owners: list[View]) -> tuple[float | None, list[tuple[str, str]] | None, object]:
    for key in options:
        if key not in _KEYWORDS:
            raise TypeError(f"unexpected keyword `{key}`: operations take {', '.join(sorted(_KEYWORDS))}")
    timeout, hints = options.get("timeout"), options.get("hints")
    kept = tuple(seen[2] for seen in owners) if options.get("async_op") else None
    return (None if timeout is None else seconds(timeout)), (None if hints is None else pairs(hints)), kept


_KEYWORDS = frozenset(Options.__annotations__)


def _same(owners: list[View]) -> DType:
    """Return the type of buffers that are to have the same one."""
    first = owners[0][1]
    for other in owners:
        if other[1] is not first:
            raise UsageError(
                f"the buffers of one call are of {first.name} and of {other[1].name}: convert one of them"
            )
    return first


def apart(written: list[View], read: list[View]) -> None:
    """Refuse buffers that are written and lie over others of the same call."""
    if len(written) == 1 and len(read) == 1:
        (w, _, _), (r, _, _) = written[0], read[0]
        if w[0] + w[1] * _SIZES[w[2]] <= r[0] or r[0] + r[1] * _SIZES[r[2]] <= w[0] or not w[1] or not r[1]:
            return
        raise UsageError(_LIES_OVER)
    spans = sorted((v[0][0], v[0][0] + v[0][1] * _SIZES[v[0][2]], w) for w, vs in ((1, written), (0, read)) for v in vs)
    end = end_is_written = 0
    for start, stop, is_written in spans:
        if start == stop:
            continue
        if start < end and (is_written or end_is_written):
            raise UsageError(_LIES_OVER)
        if stop > end:
            end, end_is_written = stop, is_written


_LIES_OVER = (
    "a buffer that the call writes lies over another one of the same call: pass buffers that are apart, or a copy of "
    "the input"
)
_SIZES = {dtype.native: dtype.size // dtype.scale for dtype in NAMES.values()}
