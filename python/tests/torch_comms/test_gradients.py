"""Operations of ``roundelay.torchcomms`` have gradients, and can be compiled, where torchcomms' functional ones do."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import jobs
import pytest

torch = pytest.importorskip("torch", reason="gradients are those of torch")

from roundelay.torchcomms import functional  # noqa: E402

SOURCE = (Path(__file__).parent / "gradients.py").read_text()
NAMES = re.findall(r"^    (\w+),$", SOURCE.partition("CASES = [")[2].partition("]")[0], re.MULTILINE)


@functools.cache
def outcomes() -> list[Any]:
    imports = ["torch._dynamo", "torch._functorch.aot_autograd", "roundelay.torchcomms.functional.collectives"]
    return jobs.forked("gradients", "every", 2, 100, imports)


@pytest.mark.parametrize("name", NAMES)
def test_case(name: str) -> None:
    if not functional.is_torch_compile_supported():
        pytest.skip("this torch has no gradients of functional collectives")
    for rank, found in enumerate(outcomes()):
        assert found[name] == "", f"rank {rank}"


def test_no_case_is_left_out() -> None:
    assert len(NAMES) == 8


def test_the_variable_switches_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHCOMMS_PATCH_FOR_COMPILE", raising=False)
    assert not functional.is_torch_compile_supported_and_enabled(_current_version="2.15.0")
    monkeypatch.setenv("TORCHCOMMS_PATCH_FOR_COMPILE", "1")
    assert functional.is_torch_compile_supported_and_enabled(_current_version="2.12.0.dev1")
    assert not functional.is_torch_compile_supported_and_enabled(_current_version="2.11.0+cu130")
    monkeypatch.setenv("TORCHCOMMS_COMPILE_IGNORE_PYTORCH_VERSION_REQUIREMENT", "1")
    assert functional.is_torch_compile_supported(_current_version="2.11.0")


def test_without_it_operations_are_what_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHCOMMS_PATCH_FOR_COMPILE", raising=False)
    import roundelay.torchcomms as torchcomms
    from roundelay.torchcomms import _base

    assert _base._functional is None, "a test has switched it on in this process"
    store = torch.distributed.HashStore()
    comm = torchcomms.new_comm("roundelay", "cpu", "without gradients", store=store, rank=0, size=1)
    work = comm.all_reduce(torch.ones(2), torchcomms.ReduceOp.SUM, async_op=False)
    assert type(work).__name__ == "TorchWork" and not comm._groups
    comm.finalize()
