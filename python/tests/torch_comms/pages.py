"""One rank that runs what the pages of torchcomms show, by programs that make the same calls.

``ROUNDELAY_TEST_TORCHCOMMS`` names the module: ``roundelay.torchcomms``, or ``torchcomms`` where it is built. The
communicators find each other as the pages have it, by a launcher's variables. Cases that compare values have references
that need no communicator.
"""

from __future__ import annotations

import importlib
import json
import os
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

NAME = os.environ.get("ROUNDELAY_TEST_TORCHCOMMS", "roundelay.torchcomms")
torchcomms: Any = importlib.import_module(NAME)
OURS = NAME != "torchcomms"
DEVICE = torch.device("cpu")
RANK, SIZE = 0, 1
RING_SUM = 1.0

CASES: dict[str, Callable[[], None]] = {}


def case(page: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Add a case for an example of a page, by the page's path in torchcomms' repository."""

    def add(body: Callable[[], None]) -> Callable[[], None]:
        CASES[f"{page}: {body.__name__}"] = body
        return body

    return add


def made(name: str, **more: Any) -> Any:
    return torchcomms.new_comm("roundelay", DEVICE, name=name, **more)


def expect(tensor: torch.Tensor, value: float) -> None:
    assert torch.equal(tensor, torch.full_like(tensor, value)), f"{tensor.tolist()[:4]}, not {value}"


@case("README.md")
def quick_start() -> None:
    comm = made("quick_start")
    rank, size = comm.get_rank(), comm.get_size()
    assert (rank, size) == (RANK, SIZE)
    tensor = torch.full((1024,), float(rank + 1), dtype=torch.float32, device=DEVICE)
    comm.all_reduce(tensor, torchcomms.ReduceOp.SUM, async_op=False)
    expect(tensor, RING_SUM)
    comm.finalize()


@case("README.md")
def asynchronous() -> None:
    comm = made("asynchronous")
    tensor = torch.full((1024,), float(comm.get_rank() + 1))
    work = comm.all_reduce(tensor, torchcomms.ReduceOp.SUM, async_op=True)
    beside = torch.ones(16).sum()
    work.wait()
    assert beside == 16
    expect(tensor, RING_SUM)
    comm.finalize()


@case("comms/torchcomms/README.md")
def basic_usage() -> None:
    store = torch.distributed.FileStore(f"{os.environ['TEST_FOLDER']}/basic", SIZE)
    # The page gives no name.
    comm = torchcomms.new_comm("roundelay", DEVICE, store=store) if OURS else made("basic", store=store)
    tensor = torch.ones(10) * comm.get_rank()
    comm.all_reduce(tensor, torchcomms.ReduceOp.SUM, async_op=False)
    expect(tensor, RING_SUM - SIZE)
    comm.finalize()


@case("comms/torchcomms/README.md")
def asynchronous_messages() -> None:
    store = torch.distributed.FileStore(f"{os.environ['TEST_FOLDER']}/messages", SIZE)
    comm = made("messages", store=store)
    sent, received = torch.full((10,), 7.0), torch.full((10,), -1.0)
    if comm.get_rank() == 0:
        work = comm.send(sent, dst=1, async_op=True)
    else:
        work = comm.recv(received, src=0, async_op=True)
    work.wait()
    expect(received, -1.0 if comm.get_rank() == 0 else 7.0)
    comm.finalize()


@case("comms/torchcomms/README.md")
def custom_options() -> None:
    comm = made(
        "options",
        timeout=timedelta(seconds=60),
        abort_process_on_timeout_or_error=False,
        hints={"is_high_priority_stream": "true", "other::option": "value"},
    )
    options = comm.get_options()
    assert options.timeout == timedelta(seconds=60) and not options.abort_process_on_timeout_or_error
    comm.finalize()


@case("docs/source/hooks.rst")
def hooks_of_one_argument() -> None:
    op_names = importlib.import_module(f"{NAME}._comms").OpName
    comm = made("hooks")
    said: list[tuple[str, Any, int]] = []

    def before(args: Any) -> None:
        said.append(("before", args.name, args.op_id))

    def after(args: Any) -> None:
        said.append(("after", args.name, args.op_id))

    handles = [comm.register_pre_hook(before), comm.register_post_hook(after)]
    handles.append(comm.register_abort_hook(lambda: None))
    comm.all_reduce(torch.ones(10), torchcomms.ReduceOp.SUM, async_op=False)
    for handle in handles:
        handle.remove()
    comm.barrier(async_op=False)
    assert [(when, name) for when, name, _ in said] == [("before", op_names.all_reduce), ("after", op_names.all_reduce)]
    assert said[0][2] == said[1][2] >= 0
    comm.finalize()


@case("docs/source/hooks.rst")
def flight_recorder() -> None:
    comm = made("recorder")
    recorder = importlib.import_module(f"{NAME}.hooks").FlightRecorderHook(max_entries=1024)
    recorder.register_with_comm(comm)
    comm.all_reduce(torch.ones(10), torchcomms.ReduceOp.SUM, async_op=False)
    comm.barrier(async_op=False)
    trace = json.loads(recorder.dump_json())
    names = [entry["profiling_name"].rpartition(":")[2] for entry in trace["entries"]]
    assert names == ["all_reduce", "barrier"], names
    assert trace["entries"][0]["input_sizes"] == [[10]] and trace["entries"][0]["state"] == "completed"
    assert [entry["collective_seq_id"] for entry in trace["entries"]] == [1, 2]
    assert json.loads(recorder.dump_json(include_completed=False))["entries"] == []
    os.environ["TORCHCOMM_FR_DUMP_TEMP_FILE"] = f"{os.environ['TEST_FOLDER']}/trace"
    path = recorder.dump_file(rank=comm.get_rank())
    assert path.endswith(f"trace{RANK}") and len(json.loads(Path(path).read_text())["entries"]) == 2
    recorder.unregister()
    comm.barrier(async_op=False)
    assert recorder.size() == 2 and not recorder.is_enabled()
    comm.finalize()


@case("docs/source/hooks.rst")
def nan_check() -> None:
    comm = made("nan")
    check = importlib.import_module(f"{NAME}.hooks").NanCheckHook()
    check.register_with_comm(comm)
    tensor = torch.ones(10)
    comm.all_reduce(tensor, torchcomms.ReduceOp.SUM, async_op=False)
    expect(tensor, float(SIZE))
    tensor[3] = float("nan")
    try:
        comm.all_reduce(tensor, torchcomms.ReduceOp.SUM, async_op=False)
    except RuntimeError as error:
        assert "NaN detected in input tensor for 'all_reduce' on comm 'nan'" in str(error)
    else:
        raise AssertionError("a NaN was sent")
    check.unregister()
    comm.all_reduce(tensor, torchcomms.ReduceOp.SUM, async_op=False)
    assert tensor.isnan().sum() == 1
    comm.finalize()


@case("comms/torchcomms/TorchCommPy.cpp")
def hooks_of_several_arguments() -> None:
    comm = made("several")
    said: list[Any] = []
    comm.register_pre_hook(lambda name, op_id, args: said.append((name.name, args.async_op)))
    comm.register_post_hook(lambda op_id, args: said.append(args.work is not None))
    comm.barrier(async_op=True).wait()
    assert said == [("barrier", True), True], said
    comm.finalize()


@case("comms/torchcomms/TorchCommPy.cpp")
def batches() -> None:
    comm = made("batch")
    received = torch.full((4,), -1.0)
    batch = comm.batch_op_create()
    batch.send(torch.full((4,), float(RANK)), (RANK + 1) % SIZE)
    batch.recv(received, (RANK - 1) % SIZE)
    assert len(batch.ops) == 2
    batch.issue(async_op=True).wait()
    expect(received, float((RANK - 1) % SIZE))
    comm.finalize()


@case("comms/torchcomms/TorchCommPy.cpp")
def windows() -> None:
    comm = made("window")
    buffer = torch.full((8,), -1.0)
    window = comm.new_window()
    window.tensor_register(buffer)
    data = torch.arange(4.0)
    if RANK == 0:
        window.put(data, dst_rank=1, target_offset_nelems=2, async_op=True).wait()
        window.signal(1, async_op=False)
    elif RANK == 1:
        window.wait_signal(peer_rank=0, async_op=False)
        assert buffer.tolist() == [-1, -1, 0, 1, 2, 3, -1, -1], buffer.tolist()
    comm.barrier(async_op=False)
    window.tensor_deregister()
    comm.finalize()


@case("comms/torchcomms/TorchCommPy.cpp")
def mapped_windows() -> None:
    if not OURS:
        return  # It needs memory that ours alone gives on the CPU.
    comm = made("mapped")
    buffer = comm.allocate_tensor(4)
    buffer.fill_(float(RANK))
    window = comm.new_window(buffer)
    comm.barrier(async_op=False)
    peer = (RANK + 1) % SIZE
    attributes = window.get_attr(peer_rank=peer)
    assert attributes.access_type is torchcomms.TorchCommWinAccessType.WIN_ACCESS_TYPE_UNIFIED
    expect(window.map_remote_tensor(rank=peer), float(peer))
    comm.barrier(async_op=False)
    window.tensor_deregister()
    comm.finalize()


@case("comms/torchcomms/TorchCommPy.cpp")
def reconfigure() -> None:
    store = torch.distributed.FileStore(f"{os.environ['TEST_FOLDER']}/handles", SIZE)
    comm = made("again", enable_reconfigure=True)
    store.set(f"handle{RANK}", comm.get_init_handle())
    handles = [store.get(f"handle{rank}").decode() for rank in range(SIZE)]
    comm.reconfigure(uuid=1, init_handles=handles, timeout=timedelta(seconds=30)).wait_blocking()
    tensor = torch.ones(3)
    comm.all_reduce(tensor, op=torchcomms.ReduceOp.SUM, async_op=False)
    expect(tensor, float(SIZE))
    comm.finalize()


@case("comms/torchcomms/objcol.py")
def objects() -> None:
    objcol = importlib.import_module(f"{NAME}.objcol")
    comm = made("objects")
    listed: list[Any] = ["foo", 12, {1: 2}, None, [3.5] * 1000]
    own = listed[RANK]
    output: list[Any] = [None] * SIZE
    objcol.all_gather_object(comm, output, own)
    assert output == listed[:SIZE], output
    output = [None] * SIZE
    objcol.gather_object(comm, own, root=0, object_gather_list=output if RANK == 0 else None)
    assert output == (listed[:SIZE] if RANK == 0 else [None] * SIZE), output
    given: list[Any] = list(listed) if RANK == 0 else [None] * len(listed)
    objcol.broadcast_object_list(comm, given, root=0)
    assert given == listed, given
    scattered: list[Any] = [None]
    objcol.scatter_object_list(
        comm, root=0, scatter_object_output_list=scattered, scatter_object_input_list=listed if RANK == 0 else None
    )
    assert scattered == [own], scattered
    if RANK == 0:
        objcol.send_object_list(comm, listed, dst=1)
    elif RANK == 1:
        received: list[Any] = [None] * len(listed)
        objcol.recv_object_list(comm, received, src=0)
        assert received == listed, received
    comm.finalize()


class Unsafe:
    """A class of this program, which only ``weights_only=False`` unpickles."""


@case("comms/torchcomms/objcol.py")
def objects_that_are_not_weights() -> None:
    objcol = importlib.import_module(f"{NAME}.objcol")
    comm = made("unsafe")
    output: list[Any] = [None] * SIZE
    objcol.all_gather_object(comm, output, Unsafe(), weights_only=False)
    assert all(isinstance(each, Unsafe) for each in output)
    output = [None] * SIZE
    try:
        objcol.all_gather_object(comm, output, Unsafe())
    except Exception as error:
        assert "weights" in str(error).lower(), error
    else:
        raise AssertionError("a class was unpickled with weights_only=True")
    comm.finalize()


@case("comms/torchcomms/device_mesh.py")
def mesh_of_one_dimension() -> None:
    device_mesh = importlib.import_module(f"{NAME}.device_mesh")
    comm = made("mesh")
    mesh = device_mesh.init_device_mesh(mesh_dim_comms=(comm,), mesh_dim_names=("global",))
    group = mesh.get_group("global")
    assert group.group_name == "global" and mesh.size() == SIZE and mesh.get_rank() == RANK
    tensor = torch.ones(10, dtype=torch.int32)
    torch.distributed.all_reduce(tensor, group=group)
    expect(tensor, SIZE)
    comm.finalize()
    if OURS:
        assert not torch.distributed.is_initialized()


@case("comms/torchcomms/README.md")
def split() -> None:
    comm = made("whole")
    assert comm.split([], name="none") is None
    half = comm.split([RANK], name=f"alone{RANK}")
    tensor = torch.full((3,), float(RANK))
    half.all_reduce(tensor, torchcomms.ReduceOp.SUM, async_op=False)
    expect(tensor, float(RANK))
    half.finalize()
    comm.finalize()


@case("comms/torchcomms/rccl/examples")
def matrix_and_vector() -> None:
    comm = made("product")
    rows = 16 // SIZE
    generator = torch.Generator().manual_seed(3)
    matrix, vector = torch.randn(16, 8, generator=generator), torch.randn(8, generator=generator)
    own = vector.clone() if RANK == 0 else torch.full((8,), -1.0)
    comm.broadcast(own, 0, async_op=False)
    local = matrix[RANK * rows : (RANK + 1) * rows].contiguous() @ own
    parts = [torch.full((rows,), -1.0) for _ in range(SIZE)]
    comm.all_gather(parts, local, async_op=False)
    assert torch.allclose(torch.cat(parts), matrix @ vector)
    comm.finalize()


@case("comms/torchcomms/ncclx/examples")
def messages_in_a_ring() -> None:
    comm = made("ring")
    sent, received = torch.full((1024,), float(RANK)), torch.full((1024,), -1.0)
    after, before = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    if RANK % 2 == 0:
        comm.send(sent, after, async_op=False)
        comm.recv(received, before, async_op=False)
    else:
        comm.recv(received, before, async_op=False)
        comm.send(sent, after, async_op=False)
    expect(received, float(before))
    comm.finalize()


def every(comm: Any) -> dict[str, str]:
    """Run all cases, each with communicators of its own; return what each has to complain of."""
    global RANK, SIZE, RING_SUM
    RANK, SIZE = comm.get_rank(), comm.get_size()
    RING_SUM = float(sum(range(1, SIZE + 1)))
    found = {}
    for name, body in CASES.items():
        print(name, flush=True)
        try:
            body()
            found[name] = ""
        except Exception:
            found[name] = traceback.format_exc()
    comm.finalize()
    return found
