"""Seeded cases over Gloo: one rank hangs, or makes another call than the others, and the error that every rank has then.

Runs as the ranks of a job: ``python observed_cases.py RANK RANKS FOLDER COUNT SEED ORDER``, where the order is a list
in JSON of kinds and checks. Each case has a group of its own. What a rank has found is in ``FOLDER/result<RANK>``.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

KINDS = ("hang", "operation", "shape", "type", "root", "operator")
TIMEOUT = 1.0
"""Seconds after which a call is overdue."""
DEADLINE = 15.0
"""Seconds within which every rank must have its error."""
FILL = 7.25


@dataclass
class CallPlan:
    """A call that a rank makes."""

    name: str
    count: int = 4
    dtype: str = "float32"
    operator: str = "SUM"
    root: int = 0


@dataclass
class CasePlan:
    """A case: the calls of all ranks, and the one of the culprit that is another."""

    number: int
    kind: str
    check: str
    """How calls are compared; ``bare``: the group is not observed."""
    culprit: int
    calls: list[CallPlan]
    wrong: CallPlan
    at: int
    """The number of the call that is another, or is not made, from 1."""


def plan(number: int, seed: int, ranks: int, order: Sequence[Sequence[str]]) -> CasePlan:
    """Return the case of a number, the same on every rank; ``order`` has the kind and the check of each case."""
    draw = random.Random(f"{seed}/{number}")
    kind, check = order[number % len(order)]
    reducing = ["all_reduce", "reduce"]
    rooted = ["broadcast", "reduce"]
    plain = ["all_reduce", "broadcast", "reduce", "all_gather", "gather", "scatter"]
    if check == "before":
        # Gloo makes it on the calling thread, which waits in C++ until Gloo's own timeout.
        plain.append("reduce_scatter")
    names = {"root": rooted, "operator": reducing, "shape": plain, "type": plain}.get(kind, [*plain, "barrier"])

    def call(name: str) -> CallPlan:
        return CallPlan(
            name,
            draw.choice([1, 4, 100, 3000]),
            draw.choice(["float32", "float64", "int32", "int64"]),
            draw.choice(["SUM", "MAX", "MIN"]),
            draw.randrange(ranks),
        )

    calls = [call(draw.choice(plain)) for _ in range(draw.randrange(4))]
    right = call(draw.choice(names))
    calls.append(right)
    wrong = CallPlan(**asdict(right))
    if kind == "operation":
        wrong.name = draw.choice([each for each in [*plain, "barrier"] if each != right.name])
    elif kind == "shape":
        wrong.count = right.count + draw.choice([1, 5, right.count])
    elif kind == "type":
        wrong.dtype = draw.choice([each for each in ("float32", "float64", "int32", "int64") if each != right.dtype])
    elif kind == "root":
        wrong.root = (right.root + draw.randrange(1, ranks)) % ranks
    elif kind == "operator":
        wrong.operator = draw.choice([each for each in ("SUM", "MAX", "MIN", "PRODUCT") if each != right.operator])
    return CasePlan(number, kind, check, draw.randrange(ranks), calls, wrong, len(calls))


def make(call: CallPlan, rank: int, ranks: int, group: Any) -> Any:
    """Make a call; return its work."""
    import torch
    import torch.distributed as dist

    def filled() -> Any:
        return torch.full((call.count,), FILL, dtype=getattr(torch, call.dtype))

    op, mine = getattr(dist.ReduceOp, call.operator), call.root == rank
    each = [filled() for _ in range(ranks)]
    calls: dict[str, Callable[[], Any]] = {
        "all_reduce": lambda: dist.all_reduce(filled(), op, group, async_op=True),
        "broadcast": lambda: dist.broadcast(filled(), call.root, group, async_op=True),
        "reduce": lambda: dist.reduce(filled(), call.root, op, group, async_op=True),
        "all_gather": lambda: dist.all_gather(each, filled(), group, async_op=True),
        "gather": lambda: dist.gather(filled(), each if mine else None, call.root, group, async_op=True),
        "scatter": lambda: dist.scatter(filled(), each if mine else None, call.root, group, async_op=True),
        "reduce_scatter": lambda: dist.reduce_scatter(filled(), each, op, group, async_op=True),
        "barrier": lambda: dist.barrier(group, async_op=True),
    }
    return calls[call.name]()


def run(case: CasePlan, rank: int, ranks: int, group: Any, over: Callable[[], bool]) -> dict[str, Any]:
    """Make the calls of a case until one raises; return the error, and how long it took from the wrong call on."""
    import roundelay

    is_culprit = rank == case.culprit
    begun = time.monotonic()
    try:
        for call in case.calls[:-1]:
            make(call, rank, ranks, group).wait()
        begun = time.monotonic()
        if is_culprit and case.kind == "hang":
            while not over() and time.monotonic() < begun + DEADLINE + 5:
                time.sleep(0.02)
        else:
            make(case.wrong if is_culprit else case.calls[-1], rank, ranks, group).wait()
        # What went unnoticed by the backend is found while the program goes on.
        while time.monotonic() < begun + DEADLINE:
            make(CallPlan("all_reduce"), rank, ranks, group).wait()
            time.sleep(0.01)
    except roundelay.Error as error:
        return {
            "error": type(error).__name__,
            "peer": error.peer,
            "rank": error.rank,
            "text": str(error),
            "seconds": time.monotonic() - begun,
        }
    except Exception as error:
        return {"error": type(error).__name__, "peer": None, "text": str(error), "seconds": time.monotonic() - begun}
    return {"error": "none", "peer": None, "text": "", "seconds": time.monotonic() - begun}


def main() -> None:
    rank, ranks, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    count, seed = int(sys.argv[4]), int(sys.argv[5])
    order = json.loads(sys.argv[6])
    faulthandler.dump_traceback_later(60 + 20 * count, exit=True)
    import torch.distributed as dist

    import roundelay

    store = dist.TCPStore("127.0.0.1", int(os.environ["ROUNDELAY_TEST_PORT"]), ranks, rank == 0)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=timedelta(seconds=60))
    kept, results = [], []
    for number in range(count):
        case = plan(number, seed, ranks, order)
        is_observed = case.check != "bare"
        # Longer than the timeout of the observer: Gloo's own would end the calls otherwise.
        group: Any = dist.new_group(timeout=timedelta(seconds=DEADLINE + 5 if is_observed else TIMEOUT))
        if is_observed:
            prefix = f"{folder}/flight-{number}-"
            group = roundelay.observe(
                group, timeout=TIMEOUT, check=case.check, late=0.2, interval=0.1, flight=prefix
            )
        kept.append(group)
        done = f"done/{number}"

        def over(done: str = done) -> bool:
            return int(store.add(done, 0)) >= ranks - 1

        found = run(case, rank, ranks, group, over)
        store.add(done, 1)
        while int(store.add(done, 0)) < ranks:
            time.sleep(0.005)
        print(case, found, flush=True)
        results.append(found)
    (folder / f"result{rank}").write_text(json.dumps(results))
    store.add("left", 1)
    while rank == 0 and int(store.add("left", 0)) < ranks:
        time.sleep(0.005)
    # The destructors of groups whose calls hang would wait for Gloo's own timeout.
    os._exit(0)


if __name__ == "__main__":
    main()
