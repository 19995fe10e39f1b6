"""An algorithm as a Python function: proved, then run by four processes.

python examples/python/02_own_algorithm.py
"""

import numpy as np

import roundelay
from roundelay import Communicator
from roundelay.lang import Ranks, chunks, data, each


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


def main(comm: Communicator) -> int:
    """Run on one rank."""
    comm.install(ring)  # From now on it serves every all_reduce.
    numbers = np.full(1000, comm.rank + 1)
    comm.all_reduce(numbers)
    return int(numbers[-1])


if __name__ == "__main__":
    print([checked.verdict for checked in ring.check(range(2, 9))])
    print(roundelay.launch(main, 4))
