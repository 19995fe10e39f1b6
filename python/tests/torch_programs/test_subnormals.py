"""Ranks have the same bits where the thread of one has switched subnormal numbers off."""

from __future__ import annotations

import pytest
from ranks import threads

from roundelay import Communicator

torch = pytest.importorskip("torch", reason="it switches subnormal numbers off")

# Subnormal numbers by their bits: a literal would be flushed, too.
BITS = [71362, 1, 0x007F_FFFF, 0x0080_0000]


def test_one_rank_that_flushes_subnormals_has_the_bits_of_the_other() -> None:
    if not torch.set_flush_denormal(False):
        pytest.skip("the processor cannot switch subnormal numbers off")

    def call(comm: Communicator) -> list[list[int]]:
        torch.set_flush_denormal(comm.rank == 1)
        found = []
        for algorithm in (None, "one_shot", "ring", "recursive_doubling"):
            for op in ("sum", "max", "min"):
                data = torch.tensor(BITS, dtype=torch.int32).view(torch.float32)
                comm.all_reduce(data, op, hints={"algorithm": algorithm} if algorithm else None)
                found.append(data.view(torch.int32).tolist())
        return found

    first, second = threads(call, 2)
    assert first == second
    # Twice the bits are twice the number, up to the first normal one, whose exponent grows by one.
    sums = [2 * bits for bits in BITS[:3]] + [0x0100_0000]
    assert first == [sums, BITS, BITS] * 4
