"""NCCL alone on two GPUs: collectives one after the other, 20 calls of each size.

    python3 nccl.py SEQUENCE [windows] [fresh]

SEQUENCE has a letter a collective: a ncclAlltoAll, m the same as sends and receives, b ncclBroadcast, r ncclAllReduce,
g ncclAllGather. With `windows` the buffers are symmetric windows; with `fresh` the ranks join anew for each.
"""

import ctypes as c
import os
import socket
import sys

sequence, options = sys.argv[1], sys.argv[2:]
SIZES, FLOAT, SUM, RANKS = (4 << 20, 1 << 20), 7, 0, 2
ends = socket.socketpair()
rank = 0 if os.fork() else 1
peer = ends[rank]
cuda, nccl = c.CDLL("libcuda.so.1"), c.CDLL(os.environ.get("ROUNDELAY_NCCL", "libnccl.so.2"))


class Id(c.Structure):
    _fields_ = [("bytes", c.c_char * 128)]


nccl.ncclCommInitRank.argtypes = [c.c_void_p, c.c_int, Id, c.c_int]
comm, stream, windows = c.c_void_p(), c.c_void_p(), []


def check(code, what):
    if code:
        print(f"rank {rank}: {what} gave {code}", flush=True)
        os._exit(3)


def join():
    unique = Id()
    if rank == 0:
        check(nccl.ncclGetUniqueId(c.byref(unique)), "ncclGetUniqueId")
        peer.sendall(c.string_at(c.byref(unique), 128))
    else:
        c.memmove(c.byref(unique), peer.recv(128, socket.MSG_WAITALL), 128)
    check(nccl.ncclCommInitRank(c.byref(comm), RANKS, unique, rank), "ncclCommInitRank")
    return buffer(), buffer()


def buffer():
    size, place, window = c.c_size_t(max(SIZES)), c.c_void_p(), c.c_void_p()
    if "windows" not in options:
        check(cuda.cuMemAlloc_v2(c.byref(place), size), "cuMemAlloc")
        return place.value
    check(nccl.ncclMemAlloc(c.byref(place), size), "ncclMemAlloc")
    check(nccl.ncclCommWindowRegister(comm, place, size, c.byref(window), 1), "ncclCommWindowRegister")
    windows.append((window, place))
    return place.value


def leave():
    for window, place in windows:
        check(nccl.ncclCommWindowDeregister(comm, window), "ncclCommWindowDeregister")
        check(nccl.ncclMemFree(place), "ncclMemFree")
    windows.clear()
    check(nccl.ncclCommDestroy(comm), "ncclCommDestroy")


def call(which, size, x, y):
    count, half = c.c_size_t(size // 4), c.c_size_t(size // 4 // RANKS)
    at, to = c.c_void_p(x), c.c_void_p(y)
    if which == "a":
        return nccl.ncclAlltoAll(at, to, half, FLOAT, comm, stream)
    if which == "b":
        return nccl.ncclBroadcast(at, to, count, FLOAT, 0, comm, stream)
    if which == "r":
        return nccl.ncclAllReduce(at, to, count, FLOAT, SUM, comm, stream)
    if which == "g":
        return nccl.ncclAllGather(at, to, half, FLOAT, comm, stream)
    codes = [nccl.ncclGroupStart()]
    for r in range(RANKS):
        there = r * size // RANKS
        codes.append(nccl.ncclSend(c.c_void_p(x + there), half, FLOAT, r, comm, stream))
        codes.append(nccl.ncclRecv(c.c_void_p(y + there), half, FLOAT, r, comm, stream))
    return max(codes + [nccl.ncclGroupEnd()])


device, context = c.c_int(), c.c_void_p()
check(cuda.cuInit(0), "cuInit")
check(cuda.cuDeviceGet(c.byref(device), rank), "cuDeviceGet")
check(cuda.cuDevicePrimaryCtxRetain(c.byref(context), device), "cuDevicePrimaryCtxRetain")
check(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")
check(cuda.cuStreamCreate(c.byref(stream), 1), "cuStreamCreate")
places = None
for which in sequence:
    if places is None or "fresh" in options:
        places = join()
    for size in SIZES:
        for _ in range(20):
            check(call(which, size, *places), which)
        check(cuda.cuStreamSynchronize(stream), f"cuStreamSynchronize after {which} of {size} B")
        if rank == 0:
            print(which, size, flush=True)
    if "fresh" in options:
        leave()
peer.sendall(b".")
peer.recv(1)
print(f"rank {rank}: fine", flush=True)
os._exit(0)
