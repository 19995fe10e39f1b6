"""Four processes add up arrays, in place, in the background, and in pairs.

python examples/python/01_all_reduce.py
"""

import numpy as np

import roundelay
from roundelay import Communicator


def main(comm: Communicator) -> float:
    """Run on one rank."""
    data = np.full(1_000_000, comm.rank, dtype=np.float32)
    comm.all_reduce(data)

    # In the background: compute meanwhile, and wait before the array is used.
    work = comm.all_reduce(data, "avg", async_op=True)
    other = np.sqrt(np.arange(1_000_000)).sum()
    assert work is not None and other > 0
    work.wait()

    # A part of the ranks.
    pair = comm.split([rank for rank in range(comm.size) if rank // 2 == comm.rank // 2])
    assert pair is not None
    pair.all_reduce(data)
    return float(data[0])


if __name__ == "__main__":
    print(roundelay.launch(main, 4))
