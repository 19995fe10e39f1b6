"""Ctrl-C, factors of integers and descriptors of groups, by both faces."""

from __future__ import annotations

import faces
import pytest
import ranks

torch = pytest.importorskip("torch", reason="the backend of torch.distributed needs torch")

both = pytest.mark.parametrize("face", [faces.PYTHON, faces.COMPILED])


@both
def test_ctrl_c_ends_all_that_waits(face: str) -> None:
    found, _ = ranks.run("users", "interrupted", 2, **faces.environment(face))
    assert len(found) == 6
    for name, (error, took) in found.items():
        assert error.startswith("KeyboardInterrupt"), (name, error)
        assert took < 5, (name, took)


@both
def test_integers_have_whole_factors(face: str) -> None:
    if not hasattr(torch.distributed, "_make_nccl_premul_sum"):
        pytest.skip("torch has no factors")
    for two, half, three in ranks.run("users", "factors", 2, **faces.environment(face)):
        assert (two, three) == ("[6, 6, 6, 6, 6]", "[9, 9, 9, 9, 9]")
        assert "premul_sum by 0.5 of i32: integers are multiplied by whole numbers only" in half


@both
def test_a_group_holds_one_descriptor_and_none_once_it_is_destroyed(face: str) -> None:
    for held in ranks.run("users", "descriptors", 2, **faces.environment(face)):
        assert held["used"] - held["before"] == 8, held
        assert held["after"] == held["before"], held
