"""Algorithms of the library as Python functions."""

from typing import Annotated

import roundelay
from roundelay.lang import *  # noqa: F403
from roundelay.lang import (
    Axis,
    Ranks,
    at,
    ceil_log2,
    chunks,
    cyclic,
    data,
    each,
    input,  # noqa: A004
    log2,
    output,
    pow2,
    requires,
    root,
    run,
    schedule,
    scratch,
    span,
    split,
)


@roundelay.algorithm("all_reduce")
def ring(n: Ranks) -> None:
    """Each chunk goes round once to be summed and once to be shared."""
    chunks(n)

    for s in range(n - 1):
        for r in each:
            r.to((r + 1) % n).reduce(data[(r - s) % n])
    for s in range(n - 1):
        for r in each:
            r.to((r + 1) % n).copy(data[(r + 1 - s) % n])


@roundelay.algorithm("all_reduce")
def halving_doubling(n: Ranks) -> None:
    requires(pow2(n))
    chunks(n)

    for k in range(log2(n)):
        d = n >> (k + 1)
        for r in each:
            p = r ^ d
            r.to(p).reduce(data[cyclic(p - p % d, d)])
    for k in range(log2(n)):
        d = 1 << k
        for r in each:
            r.to(r ^ d).copy(data[cyclic(r - r % d, d)])


@roundelay.algorithm("all_reduce")
def two_level(node: Axis, gpu: Axis) -> None:
    chunks(gpu.size)

    run("reduce_scatter.ring").over(gpu)
    run("all_reduce.circulant").over(node).on(data[gpu])
    run("all_gather.ring").over(gpu)


@roundelay.algorithm("all_to_all")
def bruck(n: Ranks) -> None:
    t = scratch(n)

    for r in each:
        r.to(r).copy(input[cyclic(r, n)]).into(t)
    for k in range(ceil_log2(n)):
        d = 1 << k
        for r in each:
            r.to((r + d) % n).copy(t[span(d, n).by(2 * d).take(d)])
    for r in each:
        for j in range(n):
            r.to(r).copy(t[j]).into(output[(r - j) % n])


@roundelay.algorithm("broadcast")
def binomial(n: Ranks) -> None:
    for k in range(ceil_log2(n)):
        d = 1 << k
        for r in each:
            v = (r - root) % n
            if v < d and v + d < n:
                r.to((r + d) % n).copy(data)


@roundelay.algorithm("all_gather")
def shifted(n: Ranks) -> None:
    def seat(p: int, n: int) -> int:
        turned = p + 1
        return turned % n if n > 1 else 0

    for s in range(n - 1):
        for r in each:
            r.to(seat(r, n)).copy(data[(r - s) % n])


SIDES = 2


@roundelay.algorithm("all_reduce")
def two_rings(n: Ranks) -> None:
    chunks(n)

    for side in split(data, range(SIDES)):
        step = 1 - 2 * side
        for s in range(n - 1):
            for r in each:
                r.to((r + step) % n).reduce(data[(r - step * s) % n]).wire("bf16")
        for s in range(n - 1):
            for r in each:
                r.to((r + step) % n).copy(data[(r + step - step * s) % n]).wire("bf16")
    schedule().pipeline(4).channels(2)


@roundelay.algorithm("all_gather")
def rows_then_columns(node: Axis, gpu: Axis) -> None:
    for i, g in each:
        for p in range(gpu.size):
            if p == g:
                pass
            elif 0 <= p < gpu.size:
                at(i, g).to(i, p).copy(data[i * gpu.size + g])
    for i, g in each:
        for q in range(node.size):
            if q != i:
                at(i, g).to((q, g)).copy(data[i * gpu.size : (i + 1) * gpu.size])


@roundelay.algorithm("broadcast")
def both(n: Ranks, m: Annotated[int, range(1, 9)] = 3, up: bool = True) -> None:
    half = m * n
    chunks(2 * half)
    run("broadcast.k_nomial", k=m).on(data[0:half])
    if up:
        run("broadcast.k_nomial", k=2 + 1).on(data[half : 2 * half])
    else:
        run("broadcast.chain").on(data[half : 2 * half])
