#!/usr/bin/env python3
"""Times all_reduce of two ranks on arrays of `comm.alloc` beside other arrays of numpy, by turns.

    tests/alloc.py [--turns 7] [--json]

Needs the package, built in the profile `release` (docs/python.md). The ratio of the medians is the time of other arrays
over that of `comm.alloc`: above 1, these are faster.
"""

import argparse
import json
import statistics
import time

import numpy as np

import roundelay

SIZES = [64, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20]


def timed(comm, turns):
    rows = []
    for nbytes in SIZES:
        calls = max(5, min(2000, (256 << 20) // nbytes))
        arrays = {
            "numpy": np.zeros(nbytes // 4, np.float32),
            "alloc": np.frombuffer(comm.alloc(nbytes), np.float32),
        }
        times = {name: [] for name in arrays}
        for turn in range(turns):
            for name in list(arrays) if turn % 2 == 0 else reversed(arrays):
                for _ in range(3):
                    comm.all_reduce(arrays[name])
                comm.barrier()
                began = time.perf_counter()
                for _ in range(calls):
                    comm.all_reduce(arrays[name])
                times[name].append((time.perf_counter() - began) / calls * 1e6)
        rows.append({"bytes": nbytes, **{f"{name}_us": round(statistics.median(t), 2) for name, t in times.items()}})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=7, help="turns, of which the medians are taken")
    parser.add_argument("--json", action="store_true", help="print one JSON object a size")
    options = parser.parse_args()
    if options.turns < 1:
        parser.error("--turns: at least 1")
    for row in roundelay.launch(timed, 2, options.turns)[0]:
        ratio = round(row["numpy_us"] / row["alloc_us"], 2)
        if options.json:
            print(json.dumps({**row, "ratio": ratio}))
        else:
            print(f"{row['bytes']:>9} B  numpy {row['numpy_us']:>9.2f} us  alloc {row['alloc_us']:>9.2f} us  {ratio:.2f}")


if __name__ == "__main__":
    main()
