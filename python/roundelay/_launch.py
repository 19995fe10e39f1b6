"""Functions that run on several ranks, each a process of this machine."""

from __future__ import annotations

import datetime
import importlib
import multiprocessing
import os
import pickle
import secrets
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

from roundelay._options import seconds, whole
from roundelay.communicator import Communicator
from roundelay.errors import AbortedError, Error, LostRankError, OperationTimeoutError, StartError, UsageError

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

    from roundelay._options import Hints

__all__ = ["launch"]

_P = ParamSpec("_P")
_R = TypeVar("_R")

GRACE = 5.0
"""The seconds that ranks have to end by themselves after another one has failed."""


class _RemoteTraceback(Exception):
    """The traceback of an error in another process."""

    def __init__(self, rank: int, text: str) -> None:
        super().__init__(rank, text)
        self.rank, self.text = rank, text

    def __str__(self) -> str:
        return f"on rank {self.rank}:\n{self.text}"


def launch(
    fn: Callable[Concatenate[Communicator, _P], _R],
    n: int,
    *args: _P.args,
    **kwargs: _P.kwargs,
) -> list[_R]:
    """Call ``fn(comm, *args, **kwargs)`` on ``n`` new processes of this machine, and return the results by rank.

    ``comm`` is the rank's ``Communicator``. Function, arguments and results travel by ``pickle``, or by
    ``cloudpickle`` if that is installed, which takes functions of a notebook and lambdas too. A script calls
    ``launch`` under ``if __name__ == "__main__":``, since the processes import it. ``RANK``, ``WORLD_SIZE``,
    ``LOCAL_RANK``, ``MASTER_ADDR`` and ``MASTER_PORT`` are set for libraries that look for them. What ranks print
    appears here, in notebooks too.

    Raises the error of the first rank, by number, that failed by itself, with its traceback as ``__cause__``;
    ``LostRankError`` if it died. The other ranks then have five seconds to end. For a limit on the time, or hints
    that hold for all calls, see ``launcher``.
    """
    return _launch(fn, n, args, kwargs, None, None)


class launcher:  # noqa: N801
    """``launch`` with settings: ``roundelay.launcher(timeout=60, hints={"transport": "tcp"})(fn, 4)``.

    ``timeout`` is the longest time for the whole in seconds, after which ``OperationTimeoutError`` is raised
    and the processes are ended; ``hints`` are those of the communicator, about links too.
    """

    def __init__(self, *, timeout: float | datetime.timedelta | None = None, hints: Hints | None = None) -> None:
        self.timeout = None if timeout is None else seconds(timeout)
        self.hints = hints

    def __call__(
        self, fn: Callable[Concatenate[Communicator, _P], _R], n: int, *args: _P.args, **kwargs: _P.kwargs
    ) -> list[_R]:
        """Call a function on ``n`` processes, as ``launch``."""
        return _launch(fn, n, args, kwargs, self.timeout, self.hints)


def _launch(
    fn: Callable[..., _R],
    n: int,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    timeout: float | None,
    hints: Hints | None,
) -> list[_R]:
    n = whole(n, "n", "give the number of ranks, at least 1", 1)
    payload = _pack((fn, args, kwargs))
    ports, secret = _free_ports(2), random_secret()
    forward = not _is_descriptor(sys.stdout, 1)
    context = multiprocessing.get_context("spawn")
    ranks: list[tuple[SpawnProcess, Connection[Any, Any]]] = []
    try:
        with _main_of_a_file():
            for rank in range(n):
                ours, theirs = context.Pipe()
                inputs = (rank, n, payload, hints, ports, secret, os.getpid(), forward, theirs)
                process = context.Process(target=_rank, args=inputs, name=f"rank {rank}")
                process.start()
                theirs.close()
                ranks.append((process, ours))
        return cast("list[_R]", _Watch(ranks, timeout).results())
    finally:
        _end(ranks)


@contextmanager
def _main_of_a_file() -> Iterator[None]:
    """Have new processes import the main module only if it is one of a file: standard input cannot be read again."""
    main = sys.modules["__main__"]
    path = getattr(main, "__file__", None)
    if path is None or os.path.exists(path):
        yield
        return
    del main.__file__
    try:
        yield
    finally:
        main.__file__ = path


def _pack(value: object) -> bytes:
    try:
        cloudpickle = importlib.import_module("cloudpickle")
    except ImportError:
        try:
            return pickle.dumps(value)
        except Exception as error:
            raise UsageError(
                f"the function or its arguments cannot be sent to other processes ({error}): define the function at "
                "the top of a module, or install cloudpickle"
            ) from error
    return cast("bytes", cloudpickle.dumps(value))


def random_secret() -> dict[str, str]:
    """The variables of a random secret for the ranks, none if the environment gives one."""
    given = any(name in os.environ for name in ("ROUNDELAY_SECRET", "ROUNDELAY_SECRET_FILE"))
    return {} if given else {"ROUNDELAY_SECRET": secrets.token_hex(16)}


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()


def _is_descriptor(file: Any, number: int) -> bool:
    try:
        return bool(file.fileno() == number)
    except (AttributeError, OSError, ValueError):
        return False


# In the process that launches -------------------------------------------------------------------


class _Watch:
    """What has come from ranks."""

    def __init__(self, ranks: list[tuple[SpawnProcess, Connection[Any, Any]]], timeout: float | None) -> None:
        self.ranks = ranks
        self.done: dict[int, object] = {}
        # Of each rank that failed: its error, and whether another rank is the cause.
        self.failed: dict[int, tuple[BaseException, bool]] = {}
        self.timeout = timeout
        self.until = None if timeout is None else time.monotonic() + timeout

    def results(self) -> list[object]:
        while len(self.done) + len(self.failed) < len(self.ranks):
            open_ = [i for i in range(len(self.ranks)) if i not in self.done and i not in self.failed]
            left = None if self.until is None else max(0.0, self.until - time.monotonic())
            ready = wait([self.ranks[i][1] for i in open_] + [self.ranks[i][0].sentinel for i in open_], left)
            if not ready:
                if self.failed:
                    break
                late = ", ".join(map(str, open_))
                text = f"launch: after {self.timeout:g} s rank {late} had not ended"
                raise OperationTimeoutError(text, code="RL0703")
            before = len(self.failed)
            for rank in open_:
                process, pipe = self.ranks[rank]
                if pipe in ready:
                    self.read(rank, process, pipe)
                elif process.sentinel in ready and not pipe.poll():
                    self.lost(rank, process)
            if self.failed and not before:
                grace = time.monotonic() + GRACE
                self.until = grace if self.until is None else min(grace, self.until)
        if self.failed:
            raise self.cause()
        return [self.done[rank] for rank in range(len(self.ranks))]

    def read(self, rank: int, process: SpawnProcess, pipe: Connection[Any, Any]) -> None:
        try:
            kind, *content = pipe.recv()
        except (EOFError, ConnectionError):
            self.lost(rank, process)
            return
        if kind == "note":
            for other, (_, others) in enumerate(self.ranks):
                if other != rank:
                    try:
                        others.send(content[0])
                    except OSError:
                        pass  # It has ended, which is seen by itself.
        elif kind == "print":
            stream = sys.stdout if content[0] == 1 else sys.stderr
            stream.write(content[1])
            stream.flush()
        elif kind == "done":
            try:
                self.done[rank] = pickle.loads(content[0])
            except Exception as error:
                self.failed[rank] = (error, False)
        else:
            self.failed[rank] = (_error(rank, *content[:3]), content[3])

    def lost(self, rank: int, process: SpawnProcess) -> None:
        process.join(GRACE)
        how = _ending(process.exitcode)
        text = f"rank {rank} is gone: its process {process.pid} {how} before its function returned"
        self.failed[rank] = (LostRankError(text, code="RL0704", peer=rank), False)

    def cause(self) -> BaseException:
        """Return the error of the first rank whose failure does not follow from another one's."""
        first = sorted(self.failed.items(), key=lambda item: (item[1][1], item[0]))
        return first[0][1][0]


def _ending(code: int | None) -> str:
    """Say how a process has ended."""
    if code is None:
        # Something else in this program has waited for it, or SIGCHLD is ignored and the system keeps no status.
        return "ended, with a status that the system did not keep,"
    if code >= 0:
        return f"ended with {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def _error(rank: int, packed: bytes | None, line: str, text: str) -> BaseException:
    error: BaseException | None = None
    if packed is not None:
        try:
            error = pickle.loads(packed)
        except Exception:
            error = None
    if not isinstance(error, Exception):
        # What ends an interpreter (``sys.exit``, Ctrl-C) ended that of the rank, and is not to end this one.
        left = error is not None
        error = LostRankError(f"rank {rank} is gone: {line}", code="RL0704", peer=rank) if left else Error(line)
    error.__cause__ = _RemoteTraceback(rank, text)
    return error


def _end(ranks: list[tuple[SpawnProcess, Connection[Any, Any]]]) -> None:
    """End what has not ended, in order: by itself, by SIGTERM, by SIGKILL."""
    unfinished = sys.exc_info()[0] is not None
    for process, pipe in ranks:
        pipe.close()
    for process, _ in ranks:
        if not _has_ended(process, 0 if unfinished else GRACE):
            process.terminate()
    for process, _ in ranks:
        if not _has_ended(process, 1):
            process.kill()
            _has_ended(process, None)
        process.join(0)
        # One whose status the system did not keep cannot be closed: it counts as alive for ever.
        with suppress(ValueError):
            process.close()


def _has_ended(process: SpawnProcess, timeout: float | None) -> bool:
    """Return True if a process ends within the time: its status may be unknown, so that is not asked for."""
    return bool(wait([process.sentinel], timeout))


# In a process that was launched -----------------------------------------------------------------


class _Pipe:
    """The way to the process that launched this one, as a store and as a file."""

    def __init__(self, pipe: Connection[Any, Any]) -> None:
        self.pipe = pipe
        self.lock = threading.Lock()

    def tell(self, *message: object) -> None:
        with self.lock:
            self.pipe.send(message)

    def set(self, key: str, value: bytes, /) -> None:
        self.tell("note", value)

    def get(self, key: str, /) -> bytes | None:
        return cast("bytes", self.pipe.recv()) if self.pipe.poll(1) else None


class _Output:
    """Standard output, or standard error, of a rank whose launcher does not have them as descriptors."""

    encoding = "utf-8"
    errors = "replace"

    def __init__(self, pipe: _Pipe, number: int) -> None:
        self.pipe, self.number, self.line = pipe, number, ""

    def write(self, text: str) -> int:
        # Lines go as a whole, so that those of several ranks do not mix.
        self.line += text
        whole, newline, self.line = self.line.rpartition("\n")
        if newline:
            self.pipe.tell("print", self.number, whole + newline)
        return len(text)

    def flush(self) -> None:
        if self.line:
            text, self.line = self.line, ""
            self.pipe.tell("print", self.number, text)

    def isatty(self) -> bool:
        return False


def _rank(
    rank: int,
    size: int,
    payload: bytes,
    hints: Hints | None,
    ports: list[int],
    secret: dict[str, str],
    parent: int,
    forward: bool,
    connection: Connection[Any, Any],
) -> None:
    _die_with(parent)
    pipe = _Pipe(connection)
    if forward:
        sys.stdout, sys.stderr = cast("Any", _Output(pipe, 1)), cast("Any", _Output(pipe, 2))
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(size),
        LOCAL_WORLD_SIZE=str(size),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(ports[0]),
        ROUNDELAY_RANK=str(rank),
        ROUNDELAY_SIZE=str(size),
        ROUNDELAY_STORE=f"127.0.0.1:{ports[1]}",
        **secret,
    )
    comm: Communicator | None = None
    own = os.getpid()
    try:
        fn, args, kwargs = pickle.loads(payload)
        comm = Communicator.join(rank, size, pipe, name="launch", hints=hints)
        value = fn(comm, *args, **kwargs)
        if os.getpid() != own:
            return  # A child that the function has forked: what it returns is not the rank's.
        result = _pack(value)
        message: tuple[object, ...] = ("done", result)
    except BaseException as error:
        if os.getpid() != own:
            raise  # As above.
        follows = isinstance(error, (AbortedError, LostRankError, StartError))
        if comm is not None:
            comm.abort(f"rank {rank} raised {type(error).__name__}: {error}")
        try:
            packed: bytes | None = _pack(error)
        except Exception:
            packed = None
        line = f"rank {rank} raised {type(error).__name__}: {error}"
        message = ("failed", packed, line, "".join(traceback.format_exception(error)).rstrip(), follows)
    try:
        sys.stdout.flush()
        sys.stderr.flush()
        pipe.tell(*message)
    except OSError:
        return  # The launcher is gone, or waits no more.
    if comm is not None:
        comm.shutdown()


def _die_with(parent: int) -> None:
    """Have the system end this process when the one that launched it ends."""
    if sys.platform == "linux":
        import ctypes

        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
