"""The table of odd tensors finds what faces make wrong of them, each by a face of one rank that is wrong in one way."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the table is of tensors of torch")

import odd  # noqa: E402


def memory(tensor: Any) -> Any:
    """Return the elements as they lie, whatever is to be made of them when they are read."""
    tensor = tensor.detach()
    if tensor.is_neg():
        tensor = torch._neg_view(tensor)
    return tensor.conj() if tensor.is_conj() else tensor


def check(tensor: Any, is_output: bool, is_reduced: bool) -> None:
    """Refuse what every face must."""
    if tensor.layout is not torch.strided and not (is_reduced and tensor.layout is torch.sparse_coo):
        raise ValueError(f"roundelay: a tensor of layout {tensor.layout} has no plain memory: pass .to_dense()")
    if tensor.device.type == "meta":
        raise ValueError("roundelay: a tensor is on meta: move it to the CPU or a CUDA GPU")
    if is_reduced and "float8" in str(tensor.dtype):
        raise TypeError(
            f"roundelay: Invalid scalar type {tensor.dtype} for a reduction: convert to float16 or wider first"
        )
    if is_output and tensor.layout is torch.strided and 0 in tensor.stride():
        raise ValueError("roundelay: several elements of an output lie at one address, ...: pass a copy of it, as .clone()")


def told(look: Any = lambda tensor: tensor.detach(), refuse: Any = check) -> set[str]:
    """Return what is wrong, by operation and tensor, of a face that looks at inputs and refuses in these ways."""
    sent: list[Any] = []
    waiting: list[Any] = []

    class Work:
        def wait(self) -> None:
            if sent and waiting:
                waiting.pop().detach().copy_(look(sent.pop()))

    def gather(outputs: list[Any], tensor: Any) -> None:
        refuse(tensor, False, False)
        refuse(outputs[0], True, False)
        outputs[0].detach().copy_(look(tensor))

    def message(tensors: list[Any], tensor: Any) -> Work:
        refuse(tensor, tensors is waiting, False)
        tensors[:] = [tensor]
        return Work()

    face = odd.Face(
        0,
        1,
        lambda tensor: refuse(tensor, True, True),
        lambda tensor, _: refuse(tensor, True, False),
        gather,
        lambda tensor: message(sent, tensor),
        lambda tensor: message(waiting, tensor),
    )
    return {text.split(":")[0] for text in odd.faults(face)}


def test_a_right_face() -> None:
    assert told() == set()


def test_a_face_that_reads_memory_as_it_lies() -> None:
    wrong = told(memory)
    assert {"all_gather, negated", "send, negated, every other", "all_gather, conjugated and transposed"} <= wrong
    assert all("negated" in text or "conjugated" in text for text in wrong)


def test_a_face_that_refuses_nothing() -> None:
    wrong = told(refuse=lambda *_: None)
    assert {"all_reduce, of 8 bits", "broadcast, expanded", "recv, sparse by rows", "send, without memory"} <= wrong
    refusals = {name for name, each in odd.TABLE.items() if each.reduced or each.written}
    assert {text.split(", ", 1)[1] for text in wrong} == refusals
