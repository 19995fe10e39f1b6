#!/usr/bin/env python3
"""Times two builds of roundelay by turns, and prints the ratio of their medians.

    tests/turns.py BEFORE AFTER [--turns 5] [--least] [--transport shm,tcp] [--bytes 8,1K,64K,1M,16M] [-- more options of bench]

BEFORE and AFTER are programs built with `cargo build --release`. Each turn runs both, the first one alternating, so
that a machine which changes its speed does so for both alike. The ratio is the time before over the time after:
above 1, AFTER is faster. On a machine whose
speed changes by itself, --least says more than the medians. Two ranks; the five collectives that `docs/performance.md` measures.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys

COLLECTIVES = "all_reduce,all_gather,reduce_scatter,broadcast,all_to_all"


def rows(program, transport, options, more):
    """The times of one run, by collective and bytes, in microseconds."""
    command = [program, "bench", COLLECTIVES, "-n", "2", "--out-of-place", "--transport", transport, "--json"]
    command += ["--bytes", options.bytes, "--budget", options.budget, *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    found = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    return {(row["collective"], row["bytes"]): row["time_us"] for row in found if "time_us" in row}


def compare(transport, options, more):
    """Runs both by turns over a transport; the ratio of the medians of each point."""
    times = {options.before: {}, options.after: {}}
    for turn in range(options.turns):
        order = [options.before, options.after]
        for program in order if turn % 2 == 0 else reversed(order):
            for point, time in rows(program, transport, options, more).items():
                times[program].setdefault(point, []).append(time)
    one = min if options.least else statistics.median
    middle = {program: {p: one(t) for p, t in of.items()} for program, of in times.items()}
    return {p: (before, middle[options.after][p]) for p, before in middle[options.before].items()}


def main():
    given = sys.argv[1:]
    cut = given.index("--") if "--" in given else len(given)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--transport", default="shm,tcp")
    parser.add_argument("--bytes", default="8,1K,64K,1M,16M")
    parser.add_argument("--budget", default="30ms")
    parser.add_argument("--least", action="store_true", help="compare the least times, not the medians")
    options = parser.parse_args(given[:cut])
    for transport in options.transport.split(","):
        points = compare(transport, options, given[cut + 1 :])
        what = "least times" if options.least else "medians"
        print(f"{transport}: time before, after (us), ratio of the {what} of {options.turns} turns")
        for (collective, size), (before, after) in points.items():
            print(f"  {collective:16} {size:>10} {before:12.2f} {after:12.2f} {before / after:7.3f}")
        ratios = [before / after for before, after in points.values()]
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        print(f"  geometric mean {mean:.3f}, worst {min(ratios):.3f}, best {max(ratios):.3f}, {len(ratios)} points\n")


if __name__ == "__main__":
    main()
