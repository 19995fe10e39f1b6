"""Calls without elements in groups of NCCL's interface, on GPUs: empty.py LIBRARY [RANKS]

A thread a rank, a GPU each. Groups in which all ranks have no elements move nothing and end well between others that
are compared; so do messages without elements, also in captured groups. A group in which one rank alone has no elements
is an error on every rank, which names the call. Each case prints a line; ends with 1 if one is wrong."""

import ctypes
import os
import sys
import threading

# A mismatch is seen when nothing moves for so long.
os.environ.setdefault("ROUNDELAY_HINTS", "timeout=5s")

import torch  # noqa: E402

FLOAT32, SUM, COUNT = 7, 0, 1000


class Rank:
    """A rank's calls, which raise when they fail."""

    def __init__(self, nccl, comm, rank, size):
        self.nccl, self.comm, self.rank, self.size = nccl, ctypes.c_void_p(comm), rank, size
        self.stream = torch.cuda.Stream(rank)
        self.data = torch.full((COUNT * size,), float(rank + 1), device=rank)
        self.out = torch.full((COUNT * size,), -1.0, device=rank)
        torch.cuda.synchronize(rank)

    def call(self, name, *args):
        code = getattr(self.nccl, name)(*args)
        if code != 0:
            text = self.nccl.ncclGetLastError(self.comm)
            raise RuntimeError(f"{name}: code {code}, {(text or b'').decode(errors='replace')}")

    def group(self, *calls):
        self.call("ncclGroupStart")
        for name, *args in calls:
            getattr(self, name)(*args)
        self.call("ncclGroupEnd")

    def all_reduce(self, count):
        args = (ctypes.c_size_t(count), FLOAT32, SUM, self.comm, ctypes.c_void_p(self.stream.cuda_stream))
        self.call("ncclAllReduce", pointer(self.data), pointer(self.out), *args)

    def all_gather(self, count):
        args = (ctypes.c_size_t(count), FLOAT32, self.comm, ctypes.c_void_p(self.stream.cuda_stream))
        self.call("ncclAllGather", pointer(self.data), pointer(self.out), *args)

    def message(self, count):
        """Send to the next rank, and receive from the one before."""
        stream = ctypes.c_void_p(self.stream.cuda_stream)
        after, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        args = (ctypes.c_size_t(count), FLOAT32)
        self.call("ncclSend", pointer(self.data), *args, after, self.comm, stream)
        self.call("ncclRecv", pointer(self.out), *args, before, self.comm, stream)

    def expect(self, value, count=COUNT):
        """Compare what came, and see that nothing was written behind it; poison all anew."""
        self.stream.synchronize()
        got = self.out.cpu()
        assert (got[:count] == value).all(), f"{got[:4].tolist()} in place of {value}"
        assert (got[count:] == -1).all(), "something was written behind the result"
        self.out.fill_(-1)
        torch.cuda.synchronize(self.rank)


def pointer(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


def everyone_empty(rank):
    total = rank.size * (rank.size + 1) / 2
    for _ in range(3):
        rank.group(("all_reduce", 0))
        rank.expect(-1.0)
        rank.group(("all_reduce", 0), ("all_reduce", COUNT), ("all_gather", 0), ("message", 0))
        rank.expect(total)
        rank.group(("message", 0), ("message", COUNT))
        rank.expect((rank.rank - 1) % rank.size + 1.0)
    return "right"


def captured(rank):
    total = rank.size * (rank.size + 1) / 2
    # The first call of a kind may allocate.
    rank.group(("all_reduce", COUNT), ("message", 0))
    rank.expect(total)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.device(rank.rank), torch.cuda.stream(rank.stream):
        graph.capture_begin(capture_error_mode="thread_local")
        rank.group(("all_reduce", 0), ("all_reduce", COUNT), ("message", 0))
        graph.capture_end()
        for _ in range(3):
            graph.replay()
            rank.expect(total)
    return "right"


def one_empty(rank):
    try:
        rank.group(("all_reduce", 0 if rank.rank == 1 else COUNT))
        rank.stream.synchronize()
    except RuntimeError as error:
        return f"error: {error}"
    code = ctypes.c_int(0)
    rank.nccl.ncclCommGetAsyncError(rank.comm, ctypes.byref(code))
    if code.value == 0:
        raise AssertionError("one rank alone had no elements, and no rank has an error")
    return f"error: code {code.value}, {rank.nccl.ncclGetLastError(rank.comm).decode(errors='replace')}"


def everyone(ranks, case):
    """Run a case on all ranks at once; return what each has to say."""
    said = [None] * len(ranks)

    def run(rank):
        torch.cuda.set_device(rank.rank)
        try:
            said[rank.rank] = case(rank)
        except Exception as error:
            said[rank.rank] = f"WRONG {type(error).__name__}: {error}"

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return ["WRONG: still waits after 60 s" if text is None else text for text in said]


def main(library, size):
    nccl = ctypes.CDLL(library)
    nccl.ncclGetLastError.restype = ctypes.c_char_p
    comms = (ctypes.c_void_p * size)()
    code = nccl.ncclCommInitAll(comms, size, (ctypes.c_int * size)(*range(size)))
    assert code == 0, f"ncclCommInitAll: code {code}, {nccl.ncclGetLastError(None)}"
    ranks = [Rank(nccl, comm, rank, size) for rank, comm in enumerate(comms)]
    wrong = False
    # The last one leaves the communicator unusable.
    for case in (everyone_empty, captured, one_empty):
        said = everyone(ranks, case)
        wrong |= any(text.startswith("WRONG") for text in said)
        for rank, text in enumerate(said):
            print(f"{case.__name__:16} rank {rank}: {' '.join(text.split())[:400]}", flush=True)
    # Whatever still waits on a GPU must not keep the program.
    os._exit(int(wrong))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else torch.cuda.device_count())
