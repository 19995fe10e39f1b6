"""Runs torchcomms' integration tests, a file at a time, with each backend, and says what came out.

    python run.py CHECKOUT [--backends gloo,roundelay] [--own] [--ranks N] [--device cuda] [--only TEXT ...] [--json FILE]

With `--own` they run on `roundelay.torchcomms` in the place of torchcomms, of which nothing is built or installed.

A file passes if all ranks end well and a case has passed; it is skipped if each of its cases was. The run fails if a file
passes with the first backend and not with the others, but for files that say that they are for the first by its name.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent

SECONDS = 600.0
"""The longest that a file may take with one backend."""

LEFT_OUT = re.compile(
    r"^(CudaGraphs\w*|SymmMemRendezvous|ExpandableSegments|FullgraphCompile\w*"
    r"|distwrap (MemPool|ReduceScatterQuantized))Test$"
)
"""Files whose cases are all for other backends, or for torch.compile of torchcomms' own Python part."""


def outcome(file: Path, backend: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run a file with a backend; return its state, its cases by outcome, seconds, and why it failed."""
    with tempfile.TemporaryDirectory() as folder:
        variables = dict(
            os.environ,
            TEST_BACKEND=backend,
            TEST_FULL_SWEEP="0",
            OMP_NUM_THREADS="1",
            TORCHCOMMS_OUTCOMES=folder,
            PYTHONPATH=os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
        )
        if options.own:
            variables["PYTHONPATH"] = os.pathsep.join([str(HERE / "alias"), variables["PYTHONPATH"]])
            variables |= dict(TORCHCOMMS_CHECKOUT=str(options.checkout.resolve()), USE_TORCHCOMMS="1")
        # Without this the tests give each rank a GPU.
        variables.pop("TEST_DEVICE", None)
        if options.device == "cpu":
            variables |= dict(TEST_DEVICE="cpu", CUDA_VISIBLE_DEVICES="")
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += ["--nproc-per-node", str(options.ranks)]
        command += ["-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "-p", "outcomes", str(file)]
        begin = time.monotonic()
        with open(f"{folder}/log", "wb") as log:
            process = subprocess.Popen(
                command, env=variables, cwd=folder, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        try:
            code: int | None = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        seconds = round(time.monotonic() - begin, 1)
        text = Path(f"{folder}/log").read_text(errors="replace")
        outcomes = [json.loads(each.read_text()) for each in sorted(Path(folder).glob("outcome*"))]
    cases = {kind: max((each[kind] for each in outcomes), default=0) for kind in ("passed", "skipped", "failed")}
    failures = {key: value for each in outcomes for key, value in each["failures"].items()}
    ended = len(outcomes) == options.ranks and not failures and not any(each["broken"] for each in outcomes)
    if code is None:
        state = "hung"
    elif not ended or code != 0 and cases["passed"]:
        state = "failed"
    else:
        state = "passed" if cases["passed"] else "skipped"
    found: dict[str, Any] = dict(state=state, seconds=seconds, **cases)
    if state in ("failed", "hung"):
        found["failures"] = failures
        found["log"] = text[-6000:]
    elif state == "skipped":
        found["reasons"] = sorted({reason for each in outcomes for reason in each["reasons"]})
    return found


def by_name(row: dict[str, Any], backend: str) -> bool:
    """Return if all cases were skipped with the reason that they are for another backend, by its name."""
    reasons = row.get("reasons")
    return row["state"] == "skipped" and bool(reasons) and all(f"the {backend} backend" in each for each in reasons)


def files(options: argparse.Namespace) -> dict[str, Path]:
    """Return the files by name; with `--own` those of `distwrap` too, torchcomms' Python over its API."""
    root = options.checkout / "comms/torchcomms"
    found = {file.stem: file for file in sorted((root / "tests/integration/py").glob("*Test.py"))}
    if options.own:
        more = sorted((root / "distwrap/tests/integration").glob("*Test.py"))
        found |= {f"distwrap {file.stem}": file for file in more}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--backends", default="gloo,roundelay")
    parser.add_argument("--own", action="store_true", help="the package's own module in the place of torchcomms")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--only", nargs="*", default=[], help="files whose names have one of these texts")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    backends = ["roundelay"] if options.own else options.backends.split(",")
    rows: dict[str, dict[str, Any]] = {}
    for name, file in files(options).items():
        if LEFT_OUT.match(name) or options.only and not any(text in name for text in options.only):
            continue
        rows[name] = {}
        for backend in backends:
            # distwrap knows the devices of no other backends than torchcomms' own.
            called = f"{options.device}:{backend}" if name.startswith("distwrap") else backend
            row = rows[name][backend] = outcome(file, called, options)
            log = row.pop("log", None)
            cases = ", ".join(f"{row[kind]} {kind}" for kind in ("passed", "skipped", "failed") if row[kind])
            print(f"{name} {backend}: {row['state']} ({cases or 'no case'}; {row['seconds']} s)", flush=True)
            if log:
                print(log, flush=True)
        if options.json:
            write(options, backends, rows)
    worse = []
    for backend in backends:
        states = [row[backend]["state"] for row in rows.values()]
        print(f"{backend}: " + ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states))))
        worse += [
            f"{name} ({backend})"
            for name, row in rows.items()
            if row[backends[0]]["state"] == "passed"
            and row[backend]["state"] != "passed"
            and not by_name(row[backend], backends[0])
        ]
    if worse:
        print(f"pass with {backends[0]} only: {', '.join(worse)}")
    broken = [name for name, row in rows.items() if row[backends[-1]]["state"] in ("failed", "hung")]
    return 1 if worse or broken else 0


def write(options: argparse.Namespace, backends: list[str], rows: dict[str, dict[str, Any]]) -> None:
    """Write the rows, with what they were made with."""
    import torch

    commit = subprocess.run(
        ["git", "-C", str(options.checkout), "rev-parse", "HEAD"], capture_output=True, text=True
    ).stdout.strip()
    made = dict(torch=torch.__version__, torchcomms=commit, ranks=options.ranks, device=options.device, sweep="reduced")
    options.json.write_text(json.dumps(dict(**made, backends=backends, files=rows), indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
