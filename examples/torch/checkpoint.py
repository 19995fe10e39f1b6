"""Distributed checkpoints: a sharded model saved, saved in the background, and loaded into another one.

torchrun --nproc-per-node 2 examples/torch/checkpoint.py roundelay
"""

from __future__ import annotations

import shutil
import tempfile
import warnings
from concurrent.futures import Future

import torch
import torch.distributed as dist
from job import Losses, main, model, train
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save, save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

warnings.filterwarnings("ignore", module="torch.distributed.checkpoint")


def _sharded() -> torch.nn.Module:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    sharded = model()
    fully_shard(sharded, mesh=mesh)
    return sharded


def _again(folder: str) -> list[float]:
    """Load a checkpoint into a new model, and train that."""
    restored = _sharded()
    state = {"model": get_model_state_dict(restored)}
    load(state, checkpoint_id=folder)
    set_model_state_dict(restored, state["model"])
    return train(restored, torch.optim.SGD(restored.parameters(), lr=0.1), steps=2)


def run() -> Losses:
    """Return the losses before saving, and after each kind of it."""
    place = [tempfile.mkdtemp(prefix="checkpoint-") if dist.get_rank() == 0 else ""]
    dist.broadcast_object_list(place, src=0)
    folder = place[0]
    trained = _sharded()
    results = {"before": train(trained, torch.optim.SGD(trained.parameters(), lr=0.1))}
    state = {"model": get_model_state_dict(trained)}
    save(state, checkpoint_id=f"{folder}/saved")
    results["saved"] = _again(f"{folder}/saved")
    saving = async_save(state, checkpoint_id=f"{folder}/background")
    assert isinstance(saving, Future)
    saving.result()
    dist.barrier()
    results["in_the_background"] = _again(f"{folder}/background")
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(folder)
    return results


if __name__ == "__main__":
    main(run)
