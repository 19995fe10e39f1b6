"""What can be passed, and what is said of what cannot."""

from __future__ import annotations

import array
import mmap
import sys
from typing import Any

import numpy as np
import pytest
from ranks import threads

import roundelay
from roundelay import Communicator, UsageError

torch = pytest.importorskip("torch", reason="its tensors are among what is passed")


@pytest.fixture
def comm() -> Communicator:
    """Return a communicator of one rank: arguments are looked at all the same."""
    (alone,) = Communicator.local(1)
    return alone


class OnlyDlpack:
    """An array that speaks DLPack and nothing else."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __dlpack__(self, **options: Any) -> Any:
        return self.data.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.data.__dlpack_device__()


class OldDlpack(OnlyDlpack):
    """The same, of before DLPack 1.0."""

    def __dlpack__(self, **options: Any) -> Any:
        if options:
            raise TypeError("unexpected keyword")
        return self.data.__dlpack__()


MAKERS: dict[str, Any] = {
    "numpy": lambda values: np.array(values, "float32"),
    "numpy, two dimensions": lambda values: np.array(values, "float32").reshape(2, -1),
    "array": lambda values: array.array("f", values),
    "bytearray": lambda values: bytearray(int(v) for v in values),
    "memoryview": lambda values: memoryview(bytearray(int(v) for v in values)),
    "part of a bytearray": lambda values: memoryview(bytearray([9, *(int(v) for v in values), 9]))[1:-1],
    "torch": lambda values: torch.tensor(values, dtype=torch.float32),
    "torch parameter": lambda values: torch.nn.Parameter(torch.tensor(values)).detach(),
    "torch slice": lambda values: torch.tensor([9.0, *values], dtype=torch.float64)[1:],
    "bfloat16": lambda values: torch.tensor(values, dtype=torch.bfloat16),
    "DLPack": lambda values: OnlyDlpack(np.array(values, "int64")),
    "DLPack of a transposed row": lambda values: OnlyDlpack(np.array([values], "int32").T),
    "old DLPack": lambda values: OldDlpack(torch.tensor(values)),
}


def values_of(data: Any) -> list[float]:
    if isinstance(data, OnlyDlpack):
        data = data.data
    if isinstance(data, torch.Tensor):
        data = data.to(torch.float64)
    return [float(v) for v in np.asarray(data).reshape(-1)]


def sums(comm: Communicator, kind: str) -> None:
    own = [float(comm.rank + i) for i in range(6)]
    data = MAKERS[kind](own)
    comm.all_reduce(data)
    assert values_of(data) == [2.0 * i + 1 for i in range(6)]
    output = MAKERS[kind]([0.0] * 12)
    comm.all_gather_single(output, MAKERS[kind](own))
    assert values_of(output) == [0, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("kind", MAKERS)
def test_it_can_be_passed(kind: str) -> None:
    threads(sums, 2, kind)


def test_inputs_may_be_read_only() -> None:
    def call(comm: Communicator) -> None:
        fixed = np.arange(3.0)
        fixed.setflags(write=False)
        for data, output in ((fixed, np.zeros(3)), (b"abc", bytearray(3)), ("abc".encode(), np.zeros(3, "u1"))):
            comm.all_reduce_into(output, data, "max")
            assert bytes(output) == bytes(data)

    threads(call, 2)


def test_arrays_of_different_kinds_go_together() -> None:
    def call(comm: Communicator) -> None:
        out = torch.zeros(2, 4)
        comm.all_gather_single(out, array.array("f", [comm.rank] * 4))
        assert out.tolist() == [[0.0] * 4, [1.0] * 4]

    threads(call, 2)


def test_a_mapped_file_and_memory_of_a_bytearray_stay_where_they_are(comm: Communicator) -> None:
    with mmap.mmap(-1, 4096) as mapped:
        mapped[:3] = b"abc"
        comm.all_reduce(mapped)
        assert mapped[:3] == b"abc"
    data = bytearray(1 << 20)
    work = comm.all_reduce(data, async_op=True)
    assert work is not None
    work.wait()
    del work
    data.append(1)  # A buffer that is still held could not grow.


WRONG: dict[str, tuple[Any, str]] = {
    "None": (lambda: None, r"`data`, a NoneType: it is no array: pass something with the buffer protocol or DLPack"),
    "list": (lambda: [1.0, 2.0], "`data`, a list: it is no array"),
    "float": (lambda: 1.0, "`data`, a float: it is no array"),
    "str": (lambda: "abc", "`data`, a str: it is no array"),
    "bytes": (lambda: b"abc", "`data`, a bytes: it is read-only, and the call writes it: pass a bytearray"),
    "scalar": (lambda: np.float32(1), "numpy.float32.*it is read-only"),
    "read-only": (lambda: np.broadcast_to(np.float32(1), (1,)), r"of shape \(1,\) and dtype float32: it is read-only"),
    "transposed": (lambda: np.zeros((2, 3)).T, r"a numpy.ndarray of shape \(3, 2\) and dtype float64: .*C's order"),
    "strided": (lambda: np.zeros(10)[::2], r"strides \(16,\)\): pass a contiguous copy"),
    "strided memory": (lambda: memoryview(bytearray(8))[::2], "C's order"),
    "strided tensor": (lambda: torch.zeros(4, 4).t(), r"a torch.Tensor of shape \(4, 4\).*pass .contiguous\(\)"),
    "strided DLPack": (lambda: OnlyDlpack(np.zeros((3, 4)).T), "C's order"),
    "sparse": (lambda: torch.eye(3).to_sparse(), r"layout is torch.sparse_coo: pass .to_dense\(\)"),
    "conjugated": (lambda: torch.zeros(2, dtype=torch.complex64).conj(), "resolve_conj"),
    "meta tensor": (lambda: torch.zeros(2, device="meta"), "it is on the device meta"),
    "objects": (lambda: np.array([None]), "its type is object, which no call takes: convert it"),
    "text": (lambda: np.array(["a"]), "its type is <U1"),
    "time": (lambda: np.array([0], "M8[s]"), r"its type is datetime64\[s\]"),
    "long double": (lambda: np.zeros(2, np.longdouble), "its type is float128"),
    "other bytes": (
        lambda: np.zeros(2, np.dtype("f4").newbyteorder()),
        r"another kind of machine: pass .astype\(dtype.newbyteorder",
    ),
    "wide characters": (lambda: array.array("u", "ab"), "its type is `[uw]` of 4 bytes"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_it_is_refused(comm: Communicator, kind: str) -> None:
    make, said = WRONG[kind]
    if kind == "long double" and np.dtype(np.longdouble).itemsize == 8:
        said = "float64"
    with pytest.raises(UsageError, match=said) as refused:
        comm.all_reduce(make())
    assert refused.value.code == "RL0712"
    assert isinstance(refused.value, ValueError)
    # Nothing has moved: the communicator goes on.
    comm.all_reduce(np.zeros(1))


def test_wrong_calls_are_refused_with_a_remedy(comm: Communicator) -> None:
    a, b = np.zeros(4, "float32"), np.zeros(4, "float64")
    cases: list[tuple[Any, str]] = [
        (lambda: comm.all_reduce_into(a, b), "of float32 and of float64: convert one of them"),
        (lambda: comm.all_reduce(a, "summ"), "`op` is 'summ': it is one of and, avg, max"),  # type: ignore[arg-type]
        (lambda: comm.broadcast(a, 1), "`root` is 1: the ranks are 0 to 0"),
        (lambda: comm.send(a, 3), "`dst` is 3: the ranks are 0 to 0"),
        (lambda: comm.recv(a, -1), "`src` is -1"),
        (lambda: comm.all_gather([], a), "`outputs` has 0 buffers: give 1, one for each rank"),
        (lambda: comm.all_gather(a, a), "`outputs` has 4 buffers: give 1"),  # type: ignore[arg-type]
        (lambda: comm.gather(None, a), "`outputs` is None on rank 0, the root, which needs it"),
        (lambda: comm.gather_single(None, a), "`output` is None on rank 0, the root"),
        (lambda: comm.scatter_single(a, None), "`input` is None on rank 0, the root"),
        (lambda: comm.all_gather_v(a, a.copy(), [3]), "`counts` adds up to 3 elements, and the buffer has 4"),
        (lambda: comm.all_gather_v(a, a.copy(), [2, 2]), r"`counts` is \[2, 2\]: give 1 counts of elements"),
        (lambda: comm.all_reduce_into(a, a), "lies over another one of the same call"),
        (lambda: comm.all_reduce_into(a[:3], a[1:]), "lies over another one"),
        (lambda: comm.all_reduce(a, hints="ring"), "the hint `ring` has no value: write key=value"),
        (lambda: comm.all_reduce(a, hints={"algoritm": "ring"}), "algoritm"),
        (lambda: comm.all_reduce(a, timeout=-1), "`timeout` is -1: give seconds, or a timedelta"),
        (lambda: comm.all_reduce(a, timeout="5"), "`timeout` is '5': give seconds"),  # type: ignore[arg-type]
        (lambda: comm.broadcast(a, 0.7), "`root` is 0.7: the ranks are 0 to 0"),  # type: ignore[arg-type]
        (lambda: comm.broadcast(a, "0"), "`root` is '0': the ranks are 0 to 0"),  # type: ignore[arg-type]
        (lambda: comm.reduce_into(a, b, "0"), "`root` is '0': the ranks are 0 to 0"),  # type: ignore[call-overload]
        (lambda: comm.gather(None, a, 0.5), "`root` is 0.5: the ranks are 0 to 0"),  # type: ignore[call-overload]
        (lambda: comm.send(a, 0, 1.5), "`tag` is 1.5: give a whole number"),  # type: ignore[call-overload]
        (lambda: comm.all_gather_v(a, a.copy(), [4.5]), r"`counts\[0\]` is 4.5: give 1 counts"),  # type: ignore[list-item]
        (lambda: comm.alloc(-1), "`nbytes` is -1: bytes are counted from 0"),
        (lambda: Communicator.local(0), "`ranks` is 0: give the number of ranks, at least 1"),
        (lambda: roundelay.launcher(timeout=-1), "`timeout` is -1: give seconds"),
        (lambda: roundelay.launch(print, 1.5), "`n` is 1.5: give the number of ranks"),  # type: ignore[arg-type]
        (lambda: roundelay.algorithm(print), '@roundelay.algorithm\\("all_reduce"\\) above `def print`'),  # type: ignore[call-overload]
        (lambda: comm.all_gather_single(np.zeros(5, "float32"), a), "5"),
        (lambda: comm.split([0, 0]), "0"),
        (lambda: comm.explain("all_sum", 8), "all_sum"),
    ]
    for call, said in cases:
        with pytest.raises((UsageError, roundelay.SettingsError), match=said):
            call()
    with pytest.raises(TypeError, match="unexpected keyword `asink`: operations take async_op, hints, stream, timeout"):
        comm.all_reduce(a, asink=True)  # type: ignore[call-arg]
    comm.all_reduce(a)


def test_buffers_side_by_side_are_apart(comm: Communicator) -> None:
    both = np.arange(8.0)
    comm.all_reduce_into(both[:4], both[4:])
    assert both.tolist() == [4, 5, 6, 7, 4, 5, 6, 7]


def test_the_native_part_is_small_and_fast(comm: Communicator) -> None:
    """A call costs little more than the native one: less than 20 us even on a busy machine, and about 2 alone."""
    import timeit

    data = np.zeros(2, "float32")
    address = (data.ctypes.data, 2, "f32", False)
    ours = min(timeit.repeat(lambda: comm.all_reduce(data), number=2000, repeat=9)) / 2000
    native = min(timeit.repeat(lambda: comm._native.call("all_reduce", address), number=2000, repeat=9)) / 2000
    print(f"a call of {ours * 1e6:.2f} us, {native * 1e6:.2f} of them in the native part")
    assert ours - native < 20e-6
    assert sys.getrefcount(data) < 10
