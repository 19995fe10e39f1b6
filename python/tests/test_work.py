"""Work in the background: waiting, callbacks, coroutines, and what happens when it is dropped."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from ranks import processes, threads

import roundelay
from roundelay import Communicator, Work


@pytest.fixture(scope="module", autouse=True)
def endless() -> Iterator[subprocess.Popen[str]]:
    """Begin the program of the last test with the first: its end takes half a minute."""
    program = (
        "import numpy as np, roundelay\n"
        "a, b = roundelay.Communicator.local(2)\n"
        "a.all_reduce(np.zeros(9), async_op=True, timeout=600).add_done_callback(lambda w: print('called', flush=True))\n"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def started(work: Work | None) -> Work:
    assert isinstance(work, Work)
    return work


def test_wait_says_when_time_is_up_and_the_work_goes_on() -> None:
    late = threading.Event()

    def call(comm: Communicator) -> str | None:
        data = np.full(10, comm.rank + 1.0)
        if comm.rank == 1:
            assert late.wait(60)
            comm.all_reduce(data)
            return None
        work = started(comm.all_reduce(data, async_op=True))
        assert not work.done() and work.exception() is None
        with pytest.raises(roundelay.OperationTimeoutError, match="has not ended within 0.05 s; it goes on") as error:
            work.wait(0.05)
        assert isinstance(error.value, TimeoutError)
        before = repr(work)
        late.set()
        work.wait()
        work.wait()
        assert data[0] == 3.0
        return f"{before} {work!r}"

    said = threads(call, 2)[0]
    assert said is not None and "completed" in said and "in progress" in said


def test_callbacks_are_called_once_and_may_call() -> None:
    def call(comm: Communicator) -> list[str]:
        seen: list[str] = []
        ended = threading.Event()
        data, more = np.ones(3), np.ones(3)

        def then(work: Work) -> None:
            assert work.done()
            # A collective inside a callback, waited for.
            started(comm.all_reduce(more, async_op=True)).wait()
            seen.append(threading.current_thread().name)
            ended.set()

        work = started(comm.all_reduce(data, async_op=True))
        work.add_done_callback(then)
        assert ended.wait(60)
        assert more.tolist() == [2.0] * 3
        again = threading.Event()
        work.add_done_callback(lambda _: again.set())
        assert again.wait(60)
        return seen

    assert all(len(seen) == 1 for seen in threads(call, 2))


def test_what_a_callback_raises_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: (reported.append(args.exc_value), came.set()))
    came = threading.Event()

    def fails(_: Work) -> None:
        raise ValueError("of a callback")

    (comm,) = Communicator.local(1)
    started(comm.barrier(async_op=True)).add_done_callback(fails)
    assert came.wait(60)
    assert [str(e) for e in reported] == ["of a callback"]


def test_await() -> None:
    def call(comm: Communicator) -> None:
        async def main() -> None:
            ticks = 0

            async def tick() -> None:
                nonlocal ticks
                while True:
                    ticks += 1
                    await asyncio.sleep(0)

            ticking = asyncio.create_task(tick())
            data = np.full(1 << 16, comm.rank, "float32")
            await started(comm.all_reduce(data, async_op=True))
            assert data[-1] == 1.0
            works = [started(comm.all_reduce(data, "max", async_op=True)) for _ in range(5)]
            for work in works:
                await asyncio.wait_for(_awaited(work), 60)
            ticking.cancel()
            assert ticks > 0
            comm.abort("enough")
            with pytest.raises(roundelay.AbortedError, match="enough"):
                await started(comm.all_reduce(data, async_op=True))

        asyncio.run(main())

    async def _awaited(work: Work) -> None:
        await work

    ranks = Communicator.local(2)
    done = [threading.Thread(target=call, args=(comm,)) for comm in ranks[1:]]

    # Both end by their own abort, or by that of the other.
    def other() -> None:
        try:
            call(ranks[0])
        except roundelay.AbortedError:
            pass

    done.append(threading.Thread(target=other))
    for thread in done:
        thread.start()
    for thread in done:
        thread.join(60)
        assert not thread.is_alive()


def dropped(comm: Communicator) -> float:
    """Drop works and arrays at once: what was started is done, on memory that lives."""
    kept = np.full(100_000, comm.rank + 1.0)
    for _ in range(50):
        comm.all_reduce(np.full(100_000, 1.0), async_op=True)
        comm.all_gather_single(np.empty((comm.size, 1000)), np.zeros(1000), async_op=True)
    comm.all_reduce(kept, async_op=True)
    gc.collect()
    junk = [np.full(100_000, -1.0) for _ in range(20)]
    comm.barrier()
    assert all(array[0] == -1.0 for array in junk)
    return float(kept.sum())


@pytest.mark.parametrize("n", [2, 3])
def test_dropped_works_and_arrays_are_safe(n: int) -> None:
    total = n * (n + 1) / 2 * 100_000
    assert processes(dropped, n) == [total] * n


def test_arrays_of_ended_work_are_released() -> None:
    import weakref

    (comm,) = Communicator.local(1)
    data = np.zeros(1000)
    alive = weakref.ref(data)
    work = started(comm.all_reduce(data, async_op=True))
    work.wait()
    del data, work
    until = time.monotonic() + 30
    while alive() is not None and time.monotonic() < until:
        comm.barrier()
        gc.collect()
    assert alive() is None


def test_other_threads_run_while_a_rank_waits() -> None:
    ranks = Communicator.local(2)
    done = threading.Event()

    def waits() -> None:
        ranks[0].barrier()
        done.set()

    thread = threading.Thread(target=waits, daemon=True)
    thread.start()
    assert not done.wait(0.05)
    ranks[1].barrier(timeout=timedelta(seconds=30))
    assert done.wait(60)


INTERRUPTED = """
import signal
import numpy as np, roundelay

# A job in the background of a script is started with Ctrl-C ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
a, b = roundelay.Communicator.local(2)
work = a.all_reduce(np.zeros(4), async_op=True, timeout=60)
try:
    print("waiting", flush=True)
    work.wait()
except KeyboardInterrupt:
    print("interrupted", work.done(), flush=True)
b.all_reduce(np.zeros(4))
work.wait()
print("done", work.done(), flush=True)
"""


def test_ctrl_c_interrupts_wait() -> None:
    child = subprocess.Popen([sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "waiting\n"
        until, said = time.monotonic() + 60, ""
        # The signal may come just before the wait begins, where Python handles it as well, in the same `try`.
        os.kill(child.pid, signal.SIGINT)
        said, _ = child.communicate(timeout=max(1.0, until - time.monotonic()))
        assert said == "interrupted False\ndone True\n"
        assert child.returncode == 0
    finally:
        child.kill()
        child.wait()


ENDINGS = {
    "work in the background": "work = comm.all_reduce(np.zeros(1 << 20), async_op=True)",
    "a callback that waits": "comm.barrier(async_op=True).add_done_callback(lambda w: time.sleep(0.2))",
    "work that nobody answers": "(a, b) = roundelay.Communicator.local(2); a.all_reduce(np.zeros(9), async_op=True, timeout=1)",
    "a callback of work that nobody answers": (
        "(a, b) = roundelay.Communicator.local(2)\n"
        "a.all_reduce(np.zeros(9), async_op=True, timeout=1).add_done_callback(lambda w: time.sleep(0.1))"
    ),
    "a shut down communicator": "comm.shutdown(); comm.shutdown()",
    "an exit inside": "comm.barrier(); sys.exit(0)",
    "a thread that waits": (
        "(a, b) = roundelay.Communicator.local(2); t = threading.Thread(target=a.barrier, daemon=True); t.start()"
    ),
    "an algorithm": "ring = roundelay.algorithm('algorithm a implements barrier on n ranks { use dissemination }')",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_interpreter_ends_cleanly(ending: str) -> None:
    program = (
        "import sys, threading, time, numpy as np, roundelay\n"
        "(comm,) = roundelay.Communicator.local(1)\n" + ENDINGS[ending] + "\nprint('end', flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize("waits", [True, False])
def test_callbacks_are_called_at_the_end_of_the_program(waits: bool) -> None:
    program = (
        "import numpy as np, roundelay\n"
        "ranks = roundelay.Communicator.local(2)\n"
        "data = [np.ones(1 << 16, np.float32) for _ in ranks]\n"
        "works = [c.all_reduce(x, async_op=True) for c, x in zip(ranks, data)]\n"
        "works[0].add_done_callback(lambda w: print('called', flush=True))\n"
    )
    program += "works[0].wait()\n" if waits else ""
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout, done.stderr) == (0, "called\n", "")


def test_callbacks_that_have_begun_return_before_the_interpreter_ends() -> None:
    program = (
        "import atexit, threading, time, roundelay\n"
        "(comm,) = roundelay.Communicator.local(1)\n"
        "begun, ends = threading.Event(), threading.Event()\n"
        "def callback(work):\n"
        "    begun.set()\n"
        "    ends.wait()\n"
        "    for _ in range(1000):\n"
        "        time.sleep(0)  # Lets the other thread run, which ends the program.\n"
        "    print('returned', flush=True)\n"
        "comm.barrier(async_op=True).add_done_callback(callback)\n"
        "assert begun.wait(60)\n"
        "atexit.register(ends.set)\n"
    )
    command = [sys.executable, "-X", "faulthandler", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "returned\n", "")


@pytest.mark.parametrize("error", ["RuntimeError('no more')", "KeyboardInterrupt"])
def test_an_exception_that_ends_the_program_aborts_what_is_pending(error: str) -> None:
    program = (
        "import numpy as np, roundelay\n"
        "a, b = roundelay.Communicator.local(2)\n"
        "work = a.all_reduce(np.zeros(4), async_op=True, timeout=600)\n"
        f"raise {error}\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "roundelay" not in done.stderr, done.stderr
    assert error.split("(")[0] in done.stderr


def test_a_forked_process_that_fails_leaves_its_parent_alone() -> None:
    program = (
        "import os, sys, threading, numpy as np, roundelay\n"
        "a, b = roundelay.Communicator.local(2)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    raise RuntimeError('of the child')\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1\n"
        "other = threading.Thread(target=b.barrier)\n"
        "other.start(); a.barrier(); other.join()\n"
        "assert not a.aborted\n"
        "print('end')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr


LATE = """
import atexit
import numpy as np, roundelay

ranks = roundelay.Communicator.local(2)
data = [np.ones(1000), np.ones(1000)]
work = ranks[0].all_reduce(data[0], async_op=True)
work.add_done_callback(lambda work: print("called", work.done(), flush=True))
# Rank 1 comes once the program has ended, and the interpreter's own handlers run.
atexit.register(lambda: ranks[1].all_reduce(data[1], async_op=True))
"""


def test_callbacks_are_called_of_work_that_ends_with_the_program() -> None:
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.returncode) == ("called True\n", 0), done.stderr


def test_callbacks_of_operations_without_an_end_are_never_called(endless: subprocess.Popen[str]) -> None:
    out, err = endless.communicate(timeout=60)
    assert (endless.returncode, out, err) == (0, "", "")
