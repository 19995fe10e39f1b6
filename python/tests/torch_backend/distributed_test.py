"""Runs PyTorch's own ``DistributedTest`` with roundelay in the place of another backend.

    python python/tests/torch_backend/distributed_test.py                 # all cases, and the table
    python python/tests/torch_backend/distributed_test.py test_isend …    # some cases
    python python/tests/torch_backend/distributed_test.py --real gloo     # the same by Gloo itself
    python python/tests/torch_backend/distributed_test.py --face mpi      # as MPI, which has all_to_all on CPU
    ROUNDELAY_REPLACE=gloo python python/tests/torch_backend/distributed_test.py --real gloo   # in Gloo's place

The cases come with the wheel of torch, and need the package expecttest. ``--json FILE`` keeps the outcome of each. The exit status is that of the
comparison with ``--at-least N`` passed cases.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import unittest
from typing import Any


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", help="names of cases, such as test_isend; all by default")
    parser.add_argument("--real", default="roundelay", help="the backend that is opened")
    parser.add_argument("--face", default="gloo", choices=["gloo", "mpi"], help="the backend that the cases believe in")
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--at-least", type=int, default=0, help="fail with fewer passed cases")
    parser.add_argument("--json", help="write the outcomes to a file")
    return parser.parse_args()


class Table(unittest.TextTestResult):
    """Outcomes by name, shown as they come."""

    outcomes: dict[str, tuple[str, str]] = {}

    def _note(self, test: unittest.TestCase, outcome: str, reason: str = "") -> None:
        name = test.id().rsplit(".", 1)[-1]
        self.outcomes[name] = (outcome, reason)
        if outcome != "skip":
            print(f"{outcome:5} {name}  {reason}", flush=True)

    def addSuccess(self, test: unittest.TestCase) -> None:
        self._note(test, "pass")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self._note(test, "skip", reason)

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        super().addError(test, err)
        self._note(test, "FAIL", last_line(str(err[1])))

    addFailure = addError


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line.split(":")[0]]
    return (errors or lines or [""])[-1][:200]


def main() -> int:
    given = arguments()
    with tempfile.TemporaryDirectory() as folder:
        for name in ("barrier", "test_dir", "init_dir"):
            os.mkdir(os.path.join(folder, name))
        os.environ.update(
            BACKEND=given.face,
            WORLD_SIZE=str(given.ranks),
            TEMP_DIR=folder,
            OMP_NUM_THREADS="1",
            INIT_METHOD=f"file://{folder}/init_dir/shared_init_file",
        )
        return run(given)


def run(given: argparse.Namespace) -> int:
    import torch
    from torch.testing._internal import common_distributed

    for feature in ("ddp", "subgroup"):
        common_distributed.DistTestCases.backend_feature[feature].add(given.face)
    import torch.testing._internal.distributed.distributed_test as cases

    cases.BACKEND = given.real

    class TestDistBackend(cases.TestDistBackend, cases.DistributedTest._DistTestBase):  # type: ignore[misc]
        def setUp(self) -> None:
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    loader = unittest.TestLoader()
    names = given.cases or loader.getTestCaseNames(TestDistBackend)
    suite = unittest.TestSuite(TestDistBackend(name) for name in names)
    begun = time.monotonic()
    unittest.TextTestRunner(resultclass=Table, verbosity=0, stream=sys.stderr).run(suite)
    count = {kind: sum(1 for each in Table.outcomes.values() if each[0] == kind) for kind in ("pass", "FAIL", "skip")}
    print(
        f"{given.real} as {given.face}, {given.ranks} ranks: {count['pass']} pass, {count['FAIL']} fail, "
        f"{count['skip']} skip, {time.monotonic() - begun:.0f} s"
    )
    if given.json:
        with open(given.json, "w") as file:
            json.dump(Table.outcomes, file, indent=1)
    return 0 if count["pass"] >= given.at_least else 1


if __name__ == "__main__":
    sys.exit(main())
