"""The operations of communicators of GPUs, by the package's module and by torchcomms: what comes, and in which order.

    python python/tests/torch_comms/gpus.py [--ranks N] [--modules roundelay.torchcomms,torchcomms] [--json FILE]

Needs PyTorch, the package, and as many GPUs as ranks; torchcomms needs to be installed, and its backend built, if it is
named. Every case is told with what went wrong in it; ends with 1 if any did. With `--device cpu --parts operations` it
needs no GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import jobs  # noqa: E402

PARTS = {
    # name: (module of cases, function, whether devices have numbers)
    "operations": ("operations", "every", True),
    "current": ("operations", "every", False),
    "streams": ("streams", "every", True),
    "futures": ("streams", "futures", True),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--modules", default="roundelay.torchcomms,torchcomms")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--seconds", type=float, default=100, help="the longest that one part may take")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    for module in options.modules.split(","):
        for part in options.parts.split(","):
            if part == "futures" and module != "torchcomms":
                continue
            cases, function, numbered = PARTS[part]
            device = f"{options.device}:{{rank}}" if numbered and options.device == "cuda" else options.device
            begin = time.monotonic()
            variables = {"ROUNDELAY_TEST_TORCHCOMMS": module, "ROUNDELAY_TEST_DEVICE": device}
            try:
                outcomes = jobs.run(cases, function, options.ranks, options.seconds, **variables)
            except AssertionError as error:
                outcomes = [{"the job": str(error)}]
            wrong: dict[str, str] = {}
            for rank, outcome in enumerate(outcomes):
                for case, text in outcome.items():
                    if text:
                        wrong[case] = wrong.get(case, "") + f"rank {rank}: {text}"
            right = [case for case in outcomes[0] if case not in wrong]
            seconds = round(time.monotonic() - begin, 1)
            print(f"{module} {part} {device}: {len(right)} right, {len(wrong)} wrong, {seconds} s", flush=True)
            for case, text in wrong.items():
                print(f"---- {case}\n{text[-3000:]}", flush=True)
            rows.append(dict(module=module, part=part, device=device, seconds=seconds, right=right, wrong=wrong))
            if options.json:
                options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 1 if any(row["wrong"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
