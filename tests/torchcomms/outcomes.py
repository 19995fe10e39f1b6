"""A plugin of pytest that leaves what came out of each case, and lets cases run that ask for the backend by its name."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torchcomms
from roundelay.torchcomms._build import target

SUPPORTED = {"WaitBlockingTest"}
"""Classes whose cases are for the backends in their list, which ours would be in: it has what they test."""

if target().is_file() or torchcomms.__name__ != "torchcomms":
    # Torchcomms' interface for backends in Python has none of it; our own module has.
    SUPPORTED |= {"AbortTest", "GetInitHandleTest", "ReconfigureTest"}

counts: dict[str, Any] = dict(passed=0, skipped=0, failed=0, broken=False, failures={}, reasons=[])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put our backend into the lists of what it supports."""
    for item in items:
        of = getattr(item, "cls", None)
        if of is None or of.__name__ not in SUPPORTED or "roundelay" in of.SUPPORTED_BACKENDS:
            continue
        of.SUPPORTED_BACKENDS = of.SUPPORTED_BACKENDS | {"roundelay"}
        if of.__name__ == "ReconfigureTest" and os.environ.get("TEST_DEVICE") == "cpu":
            of.setUp = on_cpu(of.setUp)


def on_cpu(set_up: Any) -> Any:
    """Return what prepares a case of ours as one of Gloo's: of all backends only that is prepared on CPU."""

    def prepared(case: Any) -> None:
        backend = os.environ["TEST_BACKEND"]
        with mock.patch.dict(os.environ, TEST_BACKEND="gloo"):
            set_up(case)
        case.backend = backend

    return prepared


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count a case by its worst phase."""
    if report.failed:
        counts["failed"] += 1
        counts["failures"][report.nodeid.partition("::")[2]] = str(report.longrepr)[-1500:]
    elif report.skipped:
        counts["skipped"] += 1
        if isinstance(report.longrepr, tuple):
            counts["reasons"].append(report.longrepr[2].removeprefix("Skipped: "))
    elif report.when == "call":
        counts["passed"] += 1


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Note a file that cannot be loaded, or that is skipped as a whole."""
    if report.failed:
        counts["broken"] = True
        counts["failures"][report.nodeid] = str(report.longrepr)[-1500:]
    elif report.skipped and isinstance(report.longrepr, tuple):
        counts["reasons"].append(report.longrepr[2].removeprefix("Skipped: "))


def pytest_sessionfinish() -> None:
    """Leave the counts of this rank."""
    path = Path(os.environ["TORCHCOMMS_OUTCOMES"]) / f"outcome{os.environ.get('RANK', '0')}"
    path.write_text(json.dumps(counts))
