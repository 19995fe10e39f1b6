"""A hundred seeded cases over Gloo: a rank that hangs, or makes another call, is named on all ranks; so is one that is
killed or stopped.

``ROUNDELAY_OBSERVED_CASES`` is their number for each check, 100 by default, and ``ROUNDELAY_OBSERVED_SEED`` their seed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="process groups are torch's")

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "torch_observe"))

import jobs  # noqa: E402
import observed_cases  # noqa: E402

CASES = int(os.environ.get("ROUNDELAY_OBSERVED_CASES", "100"))
SEED = int(os.environ.get("ROUNDELAY_OBSERVED_SEED", "7"))
KINDS = {
    "before": observed_cases.KINDS,
    # Where lengths differ Gloo ends the process that receives.
    "late": ("hang", "operation", "root", "operator"),
}


@pytest.mark.timeout(120 + 10 * CASES)
@pytest.mark.parametrize("check", list(KINDS))
def test_the_culprit_is_named_on_every_rank(check: str, tmp_path: Path) -> None:
    order = [(kind, check) for kind in KINDS[check]]
    problems = jobs.run_cases(tmp_path, 3, SEED, order, CASES)
    assert [problem for of_case in problems for problem in of_case] == []


@pytest.mark.parametrize(
    ("harm", "error", "words"),
    [
        ("killed", "LostRankError", ("rank 2 has died: process ", "has ended")),
        ("stopped", "OperationTimeoutError", ("rank 2 is stopped", "kill -CONT")),
    ],
)
def test_a_rank_that_is_gone_is_named(harm: str, error: str, words: tuple[str, ...], tmp_path: Path) -> None:
    results = jobs.start("others.py", 3, tmp_path, harm, seconds=60, waited=2)
    assert None not in results[:2], jobs.logs(tmp_path, 3)
    for result in results[:2]:
        jobs.named(result[harm], error, *words)
