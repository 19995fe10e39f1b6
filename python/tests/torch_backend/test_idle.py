"""Both faces give the memory of a group back, and make it again."""

from __future__ import annotations

import faces
import pytest
import ranks

torch = pytest.importorskip("torch", reason="the backend of torch.distributed needs torch")

both = pytest.mark.parametrize("face", [faces.PYTHON, faces.COMPILED])


@both
def test_memory_of_a_group_goes_and_comes_back(face: str) -> None:
    for seen in ranks.run("idle", "phases", 2, **faces.environment(face)):
        assert seen == [True, 0, 1, True, True, True, True, True, True, True]
