"""Process groups that are communicators: what goes through their hooks, what ends them, and what is refused."""

from __future__ import annotations

import json
import os
import traceback
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.nn.parallel import DistributedDataParallel

import roundelay.torchcomms as torchcomms
from roundelay.errors import UsageError
from roundelay.torchcomms import device_mesh
from roundelay.torchcomms.hooks import FlightRecorderHook, NanCheckHook


def refused(call: Any, words: str) -> None:
    try:
        call()
    except UsageError as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"{words}: nothing was refused")


def halves(comm: Any) -> tuple[Any, Any]:
    """Return the row and the column of a rank of four."""
    rank = comm.get_rank()
    row = comm.split([rank // 2 * 2, rank // 2 * 2 + 1], "row")
    return row, comm.split([rank % 2, rank % 2 + 2], "column")


def hooks_see_calls_of_torch(comm: Any) -> None:
    part = comm.split(list(range(4)), "hooked")
    mesh = device_mesh.init_device_mesh((part,), ("hooked",))
    said: list[Any] = []
    before = part.register_pre_hook(lambda name, op_id, args: said.append((name.name, args.root, args.peer)))
    after = part.register_post_hook(lambda op_id, args: said.append(args.name.name))
    group, rank = mesh.get_group(), part.get_rank()
    tensor = torch.ones(3)
    dist.all_reduce(tensor, group=group)
    dist.broadcast(tensor, src=1, group=group)
    dist.barrier(group=group)
    outputs = [torch.zeros(3) for _ in range(4)]
    dist.all_gather(outputs, tensor, group=group)
    dist.gather(tensor, outputs if rank == 2 else None, dst=2, group=group)
    dist.scatter(tensor, outputs if rank == 3 else None, src=3, group=group)
    if rank < 2:
        (dist.send if rank == 0 else dist.recv)(tensor, 1 - rank, group=group)
    before.remove()
    after.remove()
    dist.all_reduce(tensor, group=group)
    names = ["all_reduce", "broadcast", "barrier", "all_gather", "gather", "scatter"]
    names += ["send", "recv"][rank : rank + 1] if rank < 2 else []
    assert said[1::2] == names, said
    assert [each[0] for each in said[::2]] == names, said
    roots = {each[0]: each[1] for each in said[::2]}
    assert (roots["broadcast"], roots["gather"], roots["scatter"]) == (1, 2, 3), roots
    part.finalize()


def a_nan_of_torch_is_refused(comm: Any) -> None:
    part = comm.split(list(range(4)), "nan")
    device_mesh.init_device_mesh((part,), ("nan",))
    check = NanCheckHook()
    check.register_with_comm(part)
    tensor = torch.full((3,), float("nan"))
    try:
        dist.all_reduce(tensor)
    except RuntimeError as error:
        assert "NaN detected in input tensor for 'all_reduce' on comm 'nan'" in str(error)
    else:
        raise AssertionError("a NaN was sent")
    part.finalize()


def calls_of_torch_are_recorded(comm: Any) -> None:
    part = comm.split(list(range(4)), "seen")
    recorder = FlightRecorderHook(max_entries=2)
    recorder.register_with_comm(part)
    device_mesh.init_device_mesh((part,), ("seen",))
    for _ in range(3):
        dist.all_reduce(torch.ones(3))
    part.barrier(async_op=False)
    trace = json.loads(recorder.dump_json())
    assert [each["collective_seq_id"] for each in trace["entries"]] == [3, 4], trace
    assert trace["pg_status"]["0"]["last_completed_collective"] == 4
    part.finalize()


def connections_are_shared(comm: Any) -> None:
    part = comm.split(list(range(4)), "shared")
    mesh = device_mesh.init_device_mesh((part,), ("shared",))
    again = device_mesh.init_device_mesh((part,), ("shared",))
    assert again.get_group() is mesh.get_group()
    before = part.get_backend_impl().flight()
    dist.all_reduce(torch.ones(1000), group=mesh.get_group())
    after = part.get_backend_impl().flight()
    assert after != before and "all_reduce" in after, "the group has calls of its own"
    part.finalize()


def the_end_of_a_communicator_is_that_of_its_group(comm: Any) -> None:
    for _ in range(2):  # The names are free again.
        part = comm.split(list(range(4)), "ended")
        mesh = device_mesh.init_device_mesh((part,), ("ended",))
        group = mesh.get_group()
        assert dist.is_initialized() and dist.get_world_size() == 4
        part.finalize()
        assert not dist.is_initialized() and group not in c10d._world.pg_names and not c10d._world.pg_to_tag
        try:
            group.allreduce([torch.ones(2)]).wait()
        except RuntimeError:
            pass
        else:
            raise AssertionError("a group works after its communicator has ended")
    part = comm.split(list(range(4)), "destroyed")
    device_mesh.init_device_mesh((part,), ("destroyed",))
    dist.destroy_process_group()
    assert not dist.is_initialized() and part._finalized
    part = comm.split(list(range(4)), "destroyed")
    mesh = device_mesh.init_device_mesh((part,), ("destroyed",))
    dist.destroy_process_group(mesh.get_group())
    assert part._finalized and not c10d._world.pg_names


def meshes_that_do_not_fit(comm: Any) -> None:
    row, column = halves(comm)
    refused(lambda: device_mesh.init_device_mesh((row, column), ("a", "b")), "pass it as _global_comm")
    refused(lambda: device_mesh.init_device_mesh((row,), ("a", "b")), "give one a dimension")
    refused(lambda: device_mesh.init_device_mesh((row, column), ("a", "a"), comm), "have one name")
    # Rows and columns in each other's place.
    if comm.get_rank() in (1, 2):
        refused(lambda: device_mesh.init_device_mesh((row, column), ("a", "b"), comm), "split it by rows")
    else:
        refused(lambda: device_mesh.init_device_mesh((row, column), ("a", "b"), comm), "in this order")
    assert not c10d._world.pg_names, "a mesh that was refused has left groups"
    mesh = device_mesh.init_device_mesh((column, row), ("a", "b"), comm)
    assert mesh["b"].get_local_rank() == comm.get_rank() % 2 and mesh.get_coordinate() is not None
    refused(lambda: device_mesh.init_device_mesh((row,), ("c",)), "the default group of torch.distributed")
    row.finalize()
    column.finalize()
    for entry in list(comm._groups):
        entry.forget()
    comm._groups.clear()
    assert not c10d._world.pg_names


def a_dimension_of_several(comm: Any) -> None:
    whole = comm.split(list(range(4)), "root")
    row, column = halves(whole)
    mesh = device_mesh.init_device_mesh((column, row), ("a", "b"), whole)
    flat = whole.split(list(range(4)), "flat")
    layout = mesh._layout
    together = device_mesh._flatten_with_comm(mesh, "a_b", flat, list(range(4)), layout)
    assert mesh["a_b"].size() == 4 and together.get_group().group_name == "a_b"
    tensor = torch.ones(2)
    dist.all_reduce(tensor, group=mesh["a_b"].get_group())
    assert tensor.tolist() == [4.0, 4.0]
    refused(lambda: device_mesh._flatten_with_comm(mesh, "no", flat, [0, 1], layout), "its communicator has 4")
    for each in (flat, row, column, whole):
        each.finalize()


def groups_of_a_mesh_can_be_split(comm: Any) -> None:
    whole = comm.split(list(range(4)), "splitting")
    device_mesh.init_device_mesh((whole,), ("splitting",))
    pairs = dist.new_group([0, 1]), dist.new_group([2, 3])
    tensor = torch.ones(2)
    dist.all_reduce(tensor, group=pairs[whole.get_rank() // 2])
    assert tensor.tolist() == [2.0, 2.0]
    dist.destroy_process_group()
    assert whole._finalized


def a_default_group_stays(comm: Any) -> None:
    store = dist.FileStore(f"{os.environ['TEST_FOLDER']}/default", 4)
    dist.init_process_group("gloo", store=store, rank=comm.get_rank(), world_size=4)
    default = dist.group.WORLD
    part = comm.split(list(range(4)), "beside")
    mesh = device_mesh.init_device_mesh((part,), ("beside",))
    assert dist.group.WORLD is default and mesh.get_group() is not default
    sums = torch.ones(2), torch.ones(2)
    dist.all_reduce(sums[0])
    dist.all_reduce(sums[1], group=mesh.get_group())
    assert torch.equal(*sums) and "all_reduce" in part.get_backend_impl().flight()
    part.finalize()
    dist.barrier()
    dist.destroy_process_group()


class CountedBackend(torchcomms.PythonBackend):
    """A backend whose sums are counted."""

    sums = 0

    def all_reduce(self, tensor: torch.Tensor, op: Any, async_op: bool) -> Any:
        self.sums += 1
        return super().all_reduce(tensor, op, async_op)


def overrides_of_a_backend_in_python_are_called(comm: Any) -> None:
    torchcomms.register_backend("counted", CountedBackend)
    store = dist.FileStore(f"{os.environ['TEST_FOLDER']}/counted", 4)
    whole = torchcomms.new_comm("counted", "cpu", "counted", store=store, rank=comm.get_rank(), size=4)
    backend: Any = whole.get_backend_impl()
    mesh = device_mesh.init_device_mesh((whole,), ("counted",))
    said: list[Any] = []
    whole.register_pre_hook(lambda name, op_id, args: said.append(name.name))
    tensor = torch.ones(2)
    dist.all_reduce(tensor, group=mesh.get_group())
    dist.broadcast(tensor, src=0, group=mesh.get_group())
    whole.all_reduce(tensor, torchcomms.ReduceOp.SUM, async_op=False)
    assert tensor.tolist() == [16.0, 16.0] and backend.sums == 2, (tensor, backend.sums)
    assert said == ["all_reduce", "broadcast", "all_reduce"], said
    model = DistributedDataParallel(torch.nn.Linear(4, 4), process_group=mesh.get_group())
    model(torch.ones(1, 4)).sum().backward()
    assert backend.sums > 2, "DDP takes another way"
    dist.destroy_process_group()


CASES = [
    hooks_see_calls_of_torch,
    a_nan_of_torch_is_refused,
    calls_of_torch_are_recorded,
    connections_are_shared,
    the_end_of_a_communicator_is_that_of_its_group,
    meshes_that_do_not_fit,
    a_dimension_of_several,
    groups_of_a_mesh_can_be_split,
    a_default_group_stays,
    overrides_of_a_backend_in_python_are_called,
]


def every(comm: Any) -> dict[str, str]:
    """Run all cases on four ranks; return what each has to complain of."""
    import roundelay.torch

    roundelay.torch.register()
    found = {}
    for body in CASES:
        print(body.__name__, flush=True)
        try:
            body(comm)
            found[body.__name__] = ""
        except Exception:
            found[body.__name__] = traceback.format_exc()
    comm.finalize()
    return found
