"""Ctrl-C ends every call that waits, and the other ranks are notified."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from place import search_path

PROGRAM = r"""
import json, os, signal, sys, threading, time
import numpy as np
import roundelay
from roundelay import Communicator

def local():
    ranks = Communicator.local(2)
    for rank in ranks:
        rank.set_timeout(60)
    return ranks

class Never:
    "A store in which nothing is left."
    def set(self, key, value): pass
    def get(self, key): return None

class Waits(Never):
    "A store whose `get` waits, as torch's does, and knows `wait`."
    def check(self, keys): return False
    def wait(self, keys, timeout):
        # As code in C++: no handler of signals runs before it has returned.
        import ctypes
        ctypes.CDLL(None).usleep(int(timeout.total_seconds() * 1e6))
        raise RuntimeError("wait timeout after 1ms")

def environment(**names):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        os.environ.pop(name, None)
    os.environ.update(names)

def joins(rank):
    import socket
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    roundelay.init()

def data():
    return np.ones(3, "float32")

def messages(c):
    thread = threading.Thread(target=lambda: told(lambda: c[0].recv(data(), 1, tag=5)))
    thread.start()
    time.sleep(0.2)
    c[0].recv(data(), 1, tag=6)

def contended(c):
    thread = threading.Thread(target=lambda: told(lambda: c[0].all_reduce(data())))
    thread.start()
    time.sleep(0.2)
    try:
        c[0].all_reduce(data())
    finally:
        c[0].abort("the test ends")
        thread.join()

def windows(c):
    made = []
    threads = [threading.Thread(target=lambda rank=rank: made.append((rank.rank, rank.window(np.ones(8))))) for rank in c]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    window = dict(made)[0]
    begin()
    window.wait_signal(1)

def endpoints():
    one, other = roundelay.Endpoint(), roundelay.Endpoint()
    one.connect(other.address, 60)

def late(c):
    work = c[0].all_reduce(data(), async_op=True)
    c[0].all_reduce(data())

def ends(c):
    work = c[0].all_reduce(data(), async_op=True)
    c[0].shutdown()

def reconfigures(c):
    c[0].reconfigure([c[0].handle(), c[1].handle()], timeout=60)

CASES = {
    "all_reduce": lambda c: c[0].all_reduce(data()),
    "barrier": lambda c: c[0].barrier(),
    "batch": lambda c: c[0].batch().recv(data(), 1).run(),
    "recv": lambda c: c[0].recv(data(), 1),
    "send": lambda c: c[0].send(np.ones(1 << 20), 1),
    "recv beside a thread that waits": messages,
    "a call beside a thread that waits": contended,
    "work": lambda c: c[0].all_reduce(data(), async_op=True).wait(),
    "a call after work": late,
    "shutdown after work": ends,
    "wait_signal": windows,
    "window": lambda c: c[0].window(np.ones(8)),
    "split": lambda c: c[0].split([0, 1]),
    "reconfigure": reconfigures,
    "connect": lambda c: endpoints(),
    "join as rank 0": lambda c: Communicator.join(0, 2, Never(), timeout=60),
    "join as rank 1": lambda c: Communicator.join(1, 2, Never(), timeout=60),
    "join by a store that waits": lambda c: Communicator.join(1, 2, Waits(), timeout=60),
    "init as rank 0": lambda c: joins(0),
    "init as rank 1": lambda c: joins(1),
    "a handler that raises": lambda c: c[0].all_reduce(data()),
}

sent = [0.0]

def begin():
    "Send the signal once the call that follows waits."
    def send():
        time.sleep(0.4)
        sent[0] = time.monotonic()
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=send).start()

def told(function):
    try:
        function()
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return "no error"

class Stop(Exception):
    pass

def raising(*_):
    raise Stop("the handler's own")

found = {}
for name in sys.argv[1:]:
    ranks = local()
    environment(ROUNDELAY_TIMEOUT_MS="60000")
    signal.signal(signal.SIGINT, raising if name == "a handler that raises" else signal.default_int_handler)
    if name != "wait_signal":
        begin()
    error = told(lambda: CASES[name](ranks))
    took = time.monotonic() - sent[0]
    # What goes on is not waited for.
    found[name] = [error, took, told(ranks[1].barrier) if ranks[1].aborted else ""]
    time.sleep(0.05)
print(json.dumps(found), flush=True)
os._exit(0)
"""

CALLS = (
    "all_reduce", "barrier", "batch", "recv", "send", "recv beside a thread that waits", "a call after work",
    "shutdown after work", "wait_signal", "window", "split",
)  # fmt: skip
"""Calls of a communicator, which ends."""
OTHERS = (
    "work", "a call beside a thread that waits", "reconfigure", "connect", "join as rank 0", "join as rank 1", "join by a store that waits",
    "init as rank 0", "init as rank 1",
)  # fmt: skip


def run(*names: str) -> dict[str, Any]:
    """Return of each case the error of the call, the seconds since the signal, and the error of the other rank."""
    command = [sys.executable, "-c", PROGRAM, *names]
    import os

    environment = dict(os.environ, PYTHONPATH=search_path())
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_calls_of_a_communicator() -> None:
    for name, (error, took, other) in run(*CALLS).items():
        assert error == "KeyboardInterrupt: ", (name, error)
        assert took < 5, (name, took)
        assert "rank 0 failed: a signal interrupted its wait" in other, (name, other)


def test_calls_that_end_no_communicator_and_those_that_join() -> None:
    for name, (error, took, _) in run(*OTHERS).items():
        assert error == "KeyboardInterrupt: ", (name, error)
        assert took < 5, (name, took)


def test_what_a_handler_raises_comes_out_of_the_call() -> None:
    (error, took, other) = run("a handler that raises")["a handler that raises"]
    assert error == "Stop: the handler's own" and took < 5
    assert "rank 0 failed: a signal interrupted its wait" in other


HANDLERS = r"""
import os, signal, threading, time
import numpy as np
import roundelay

ranks = roundelay.Communicator.local(2)
said = []

def aborts(*_):
    "Calls of a handler: another call on the communicator is refused, and an abort ends the one that waits."
    if not said:
        try:
            ranks[0].barrier()
        except roundelay.UsageError as error:
            said.append(str(error))
    ranks[0].abort("the handler")

signal.signal(signal.SIGUSR1, aborts)
for wait in (lambda: ranks[0].all_reduce(np.ones(3)), lambda: ranks[0].recv(np.ones(3), 1)):
    ranks = roundelay.Communicator.local(2)
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
    try:
        wait()
    except roundelay.AbortedError as error:
        assert "the handler" in str(error), error
    else:
        raise AssertionError("it was aborted")
assert "a handler of signals cannot make calls" in said[0], said
counted = []
signal.signal(signal.SIGUSR1, lambda *_: counted.append(1))
ranks = roundelay.Communicator.local(2)
threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
threading.Timer(0.6, lambda: ranks[1].barrier()).start()
ranks[0].barrier()
assert counted == [1], "a handler that raises nothing ends nothing"
print("right", flush=True)
"""


def test_handlers_may_abort_and_those_that_raise_nothing_end_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", HANDLERS], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "right\n" and done.returncode == 0, done.stderr


@pytest.mark.parametrize("rank", ["0", "1"])
def test_an_init_that_failed_can_be_tried_again(rank: str) -> None:
    program = (
        "import os, roundelay\n"
        "def told():\n"
        "    try: return str(roundelay.init())\n"
        "    except roundelay.StartError as error: return str(error)\n"
        "first = told()\n"
        "assert 'start it with a launcher' in first and 'torchrun' in first, first\n"
        f"os.environ.update(RANK='{rank}', WORLD_SIZE='2', MASTER_ADDR='127.0.0.1', MASTER_PORT='1', ROUNDELAY_TIMEOUT_MS='300')\n"
        "second = told()\n"
        "assert 'store' in second and 'joined' not in second, second\n"
        "os.environ.update(RANK='0', WORLD_SIZE='1')\n"
        "assert told() == '<roundelay.Communicator: rank 0 of 1>'\n"
        "third = told()\n"
        "assert 'has joined its job' in third, third\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
