#!/usr/bin/env python3
"""Repeats tests beside busy loops, each alone in its process, and says which fail, and how long they take.

    tests/repeat.py [FILTER ...] [--since REV] [--times 200] [--loops 6] [--at-once 2] [--budget SECONDS] [--log FILE]

A FILTER is a part of `PROGRAM::TEST`, as `runtime_tests::elastic::` or `roundelay_net::net::`. Without filters the tests of what has
changed since REV (the last commit by default) are repeated: of a module its unit tests, of a test file its tests. Only
Rust's own harness can list tests, so `files` and Python's tests are left out. A test that needs a GPU skips itself as ever.

A test whose runs would together take longer than the budget (seconds a test; none by default) is run less often, and the
table says how often. Ends with 1 if a run failed; its output is in the log.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
# No test takes as long, however busy the machine is.
LIMIT = 1800.0


class TestCase(NamedTuple):
    """A test of a program, which runs in the folder of its package."""

    program: str
    executable: str
    folder: str
    name: str

    def path(self) -> str:
        """Return the name that filters look at."""
        return f"{self.program}::{self.name}"


class TestRuns(NamedTuple):
    """The seconds that each run of a test took, and the output of those that failed."""

    seconds: list[float]
    failures: list[str]


def programs() -> Iterator[tuple[str, str, str]]:
    """Build the test programs; yield name, path and package folder of each."""
    features = os.environ.get("ROUNDELAY_FEATURES", "")
    command = ["cargo", "test", "--workspace", "--locked", "--no-run", "--message-format", "json", "--features", features]
    built = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message["reason"] == "compiler-artifact" and message["profile"]["test"] and message["executable"]:
            name = message["target"]["name"]
            if name != "files":
                yield name, message["executable"], str(Path(message["manifest_path"]).parent)


def tests() -> list[TestCase]:
    """Return all tests of all programs."""
    found = []
    for program, executable, folder in programs():
        listed = subprocess.run([executable, "--list", "--format", "terse"], check=True, stdout=subprocess.PIPE, text=True)
        names = (line.removesuffix(": test") for line in listed.stdout.splitlines() if line.endswith(": test"))
        found += [TestCase(program, executable, folder, name) for name in names]
    return found


def changed(since: str) -> list[str]:
    """Return filters for the tests of what has changed."""
    listed = subprocess.run(["git", "diff", "--name-only", since], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    crates = {"runtime": "roundelay", "tests": "roundelay_tests"}
    filters = set()
    for line in listed.stdout.splitlines():
        parts = Path(line).with_suffix("").parts
        if not line.endswith(".rs") or len(parts) < 3:
            continue
        # A folder of the runtime may be a package of its own.
        if parts[0] == "runtime" and parts[2] == "src" and len(parts) > 3:
            parts = parts[1:]
        package, kind, module = parts[:3]
        if kind == "tests":
            filters.add(f"{'cross' if package == 'tests' else package}_tests::{module}::")
        elif kind == "src" and module not in ("lib", "main"):
            filters.add(f"{crates.get(package, 'roundelay_' + package)}::{module}::")
    return sorted(filters)


def repeat(test: TestCase, times: int, budget: float) -> TestRuns:
    """Run a test that often, or until its budget is used up."""
    seconds: list[float] = []
    failures = []
    # The folder and the variable that cargo gives to tests.
    environment = {**os.environ, "CARGO_MANIFEST_DIR": test.folder}
    while len(seconds) < times and (not seconds or not budget or sum(seconds) < budget):
        began = time.monotonic()
        command = [test.executable, "--exact", test.name, "--test-threads", "1"]
        try:
            run = subprocess.run(
                command,
                cwd=test.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=LIMIT,
                check=False,
            )
            if run.returncode != 0:
                failures.append(run.stdout)
        except subprocess.TimeoutExpired:
            failures.append(f"not over after {LIMIT:.0f} s")
        seconds.append(time.monotonic() - began)
    return TestRuns(seconds, failures)


def main() -> int:
    """Repeat the chosen tests; return 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("filters", nargs="*", metavar="FILTER")
    parser.add_argument("--since", default="HEAD", metavar="REV")
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--loops", type=int, default=6)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--budget", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--log", type=Path, metavar="FILE")
    options = parser.parse_args()

    # As cargo sets it: the tests of macros need the compiler's own libraries.
    libraries = subprocess.run(["rustc", "--print", "target-libdir"], check=True, stdout=subprocess.PIPE, text=True)
    os.environ["LD_LIBRARY_PATH"] = libraries.stdout.strip()
    filters = options.filters or changed(options.since)
    chosen = [test for test in tests() if any(part in test.path() for part in filters)]
    if not chosen:
        print(f"no test is named by {filters or 'a change'}: see --help", file=sys.stderr)
        return 2
    log = options.log.open("w") if options.log else sys.stdout
    print(f"# {len(chosen)} tests, {options.times} times each, beside {options.loops} busy loops", file=log)
    print(f"# {'runs':>4} {'failed':>6} {'median s':>9} {'most s':>9}  test", file=log)
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(options.loops)]
    failed = 0
    try:
        with ThreadPoolExecutor(options.at_once) as pool:
            for test, runs in zip(chosen, pool.map(lambda t: repeat(t, options.times, options.budget), chosen), strict=True):
                failed += len(runs.failures)
                middle, most = statistics.median(runs.seconds), max(runs.seconds)
                counts = f"{len(runs.seconds):6} {len(runs.failures):6} {middle:9.2f} {most:9.2f}"
                print(f"{counts}  {test.path()}", file=log, flush=True)
                for output in runs.failures[:3]:
                    print("\n".join(f"    {line}" for line in output.splitlines()), file=log, flush=True)
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    print(f"# {failed} runs failed", file=log)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
