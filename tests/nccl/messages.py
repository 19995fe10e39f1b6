"""Times messages between GPUs by NCCL's interface: messages.py LIBRARY [LIBRARY ...] [--ranks N] [--turns N]

Each library in a process of its own, by turns: a thread a rank, a GPU each. A `ring` sends to the next rank and
receives from the one before, a `pair` exchanges with one other rank, and in `all` every rank sends to every other.
Eager calls follow each other in a stream; captured ones are replayed in a graph. What came is compared first. Prints
a line a point: the pattern, the bytes of a message, and the median of the turns in microseconds for each library,
then the first one's time over that of each other. Ends with 1 if something that came is wrong."""

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import threading

SIZES = [size << 10 for size in (1, 16, 64, 128, 256, 512, 1 << 10, 2 << 10, 8 << 10, 32 << 10, 128 << 10, 512 << 10)]
UINT8 = 1


class RankThread:
    """A rank: its communicator, its stream, and what it sends and receives."""

    def __init__(self, torch, nccl, comm, rank, ranks, meeting):
        self.torch, self.nccl, self.comm = torch, nccl, ctypes.c_void_p(comm)
        self.rank, self.ranks, self.meeting = rank, ranks, meeting
        self.stream = torch.cuda.Stream(rank)

    def call(self, name, *args):
        code = getattr(self.nccl, name)(*args)
        if code != 0:
            text = self.nccl.ncclGetLastError(self.comm) or b""
            raise RuntimeError(f"{name}: code {code}, {text.decode(errors='replace')}")

    def peers(self, pattern):
        """Return the ranks that this one sends to, and those that it receives from."""
        others = [rank for rank in range(self.ranks) if rank != self.rank]
        around = [(self.rank + 1) % self.ranks], [(self.rank - 1) % self.ranks]
        return {"ring": around, "pair": ([self.rank ^ 1], [self.rank ^ 1]), "all": (others, others)}[pattern]

    def exchange(self, pattern, bytes_):
        """Put one exchange into the stream."""
        to, sources = self.peers(pattern)
        stream = ctypes.c_void_p(self.stream.cuda_stream)
        self.call("ncclGroupStart")
        for place, peer in enumerate(to):
            at = ctypes.c_void_p(self.sent.data_ptr() + place * bytes_)
            self.call("ncclSend", at, ctypes.c_size_t(bytes_), UINT8, peer, self.comm, stream)
        for place, peer in enumerate(sources):
            at = ctypes.c_void_p(self.received.data_ptr() + place * bytes_)
            self.call("ncclRecv", at, ctypes.c_size_t(bytes_), UINT8, peer, self.comm, stream)
        self.call("ncclGroupEnd")

    def contents(self, source, to, bytes_, salt):
        """Return what a rank sends to another."""
        device = f"cuda:{self.rank}"
        values = self.torch.arange(bytes_, device=device, dtype=self.torch.int32)
        return ((values * 7 + (values >> 8) + 31 * source + 57 * to + salt) & 255).to(self.torch.uint8)

    def check(self, pattern, bytes_, salt, run):
        """Run once with fresh contents, over poison; raise if something else came."""
        to, sources = self.peers(pattern)
        for place, peer in enumerate(to):
            self.sent[place * bytes_ : (place + 1) * bytes_] = self.contents(self.rank, peer, bytes_, salt)
        self.received.fill_(0xA5)
        self.torch.cuda.synchronize(self.rank)
        self.meeting.wait(60)
        run()
        self.stream.synchronize()
        for place, peer in enumerate(sources):
            got = self.received[place * bytes_ : (place + 1) * bytes_]
            wanted = self.contents(peer, self.rank, bytes_, salt)
            if not self.torch.equal(got, wanted):
                raise AssertionError(f"{pattern} of {bytes_} bytes: what came from rank {peer} is wrong")

    def timed(self, calls, run):
        """Return the microseconds of a call, if `calls` of them follow each other."""
        first, last = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        with self.torch.cuda.stream(self.stream):
            run()
            self.stream.synchronize()
            self.meeting.wait(60)
            first.record()
            run()
            last.record()
            self.stream.synchronize()
        return first.elapsed_time(last) * 1000 / calls

    def points(self, patterns, sizes):
        """Yield pattern, way, bytes and microseconds of each point."""
        for pattern in patterns:
            places = max(map(len, self.peers(pattern)))
            for bytes_ in sizes:
                if places * bytes_ > 1 << 30:
                    continue
                self.sent = self.torch.empty(places * bytes_, dtype=self.torch.uint8, device=self.rank)
                self.received = self.torch.empty_like(self.sent)
                self.check(pattern, bytes_, 1, lambda: self.exchange(pattern, bytes_))
                calls = 20 if bytes_ <= 32 << 20 else 5

                def eager(calls=calls, bytes_=bytes_):
                    for _ in range(calls):
                        self.exchange(pattern, bytes_)

                yield pattern, "eager", bytes_, self.timed(calls, eager)
                graph = self.torch.cuda.CUDAGraph()
                with self.torch.cuda.stream(self.stream):
                    graph.capture_begin(capture_error_mode="thread_local")
                    eager()
                    graph.capture_end()
                    self.check(pattern, bytes_, 2, graph.replay)
                    yield pattern, "graph", bytes_, self.timed(calls, graph.replay)
                self.torch.cuda.synchronize(self.rank)
                self.meeting.wait(60)


def measure(library, ranks, patterns, sizes):
    """Print a line of JSON a point: the slowest rank's time."""
    import torch

    nccl = ctypes.CDLL(library)
    nccl.ncclGetLastError.restype = ctypes.c_char_p
    comms = (ctypes.c_void_p * ranks)()
    code = nccl.ncclCommInitAll(comms, ranks, (ctypes.c_int * ranks)(*range(ranks)))
    assert code == 0, f"ncclCommInitAll: code {code}, {nccl.ncclGetLastError(None)}"
    meeting = threading.Barrier(ranks)
    found = [[] for _ in range(ranks)]
    errors = []

    def run(rank):
        torch.cuda.set_device(rank)
        try:
            thread = RankThread(torch, nccl, comms[rank], rank, ranks, meeting)
            for point in thread.points(patterns, sizes):
                found[rank].append(point)
        except Exception as error:
            errors.append(f"rank {rank}: {error}")
            meeting.abort()

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    for points in zip(*found, strict=False):
        pattern, way, bytes_, _ = points[0]
        print(json.dumps([pattern, way, bytes_, max(point[3] for point in points)]), flush=True)
    print("\n".join(errors), file=sys.stderr, flush=True)
    # Whatever still waits on a GPU must not keep the program.
    os._exit(int(bool(errors) or any(thread.is_alive() for thread in threads)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("libraries", nargs="+")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--patterns", default="ring,pair,all")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    patterns, sizes = options.patterns.split(","), [int(size) for size in options.sizes.split(",")]
    if options.one:
        measure(options.libraries[0], options.ranks, patterns, sizes)
    times = {}
    failed = False
    for _ in range(options.turns):
        for at, library in enumerate(options.libraries):
            command = [sys.executable, __file__, library, "--one", "--ranks", str(options.ranks)]
            command += ["--patterns", options.patterns, "--sizes", options.sizes]
            ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=400)
            failed |= ran.returncode != 0
            for line in filter(lambda line: line.startswith("["), ran.stdout.splitlines()):
                pattern, way, bytes_, time = json.loads(line)
                times.setdefault((pattern, way, bytes_), {}).setdefault(at, []).append(time)
    for (pattern, way, bytes_), of in times.items():
        medians = [statistics.median(of.get(at, [float("nan")])) for at in range(len(options.libraries))]
        shown = " ".join(f"{median:10.2f}" for median in medians)
        ratios = " ".join(f"{medians[0] / median:6.2f}" for median in medians[1:])
        print(f"{pattern:5} {way:6} {bytes_:10} {shown}   {ratios}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
