"""Trains a small model with DeepSpeed's ZeRO on CPU; the stage is the argument."""

from __future__ import annotations

import sys

import deepspeed
import torch
from common import RANK, layers, tell

stage = int(sys.argv[1])
deepspeed.init_distributed(dist_backend="gloo")
torch.manual_seed(0)
model = layers()
engine, *_ = deepspeed.initialize(
    model=model,
    model_parameters=model.parameters(),
    config={
        "train_micro_batch_size_per_gpu": 4,
        "zero_optimization": {"stage": stage},
        "zero_force_ds_cpu_optimizer": False,
        "optimizer": {"type": "Adam", "params": {"lr": 0.01, "torch_adam": True}},
    },
)
chance = torch.Generator().manual_seed(7 + RANK)
losses = []
for _ in range(8):
    data, target = torch.randn(4, 32, generator=chance), torch.randn(4, 8, generator=chance)
    loss = torch.nn.functional.mse_loss(engine(data), target)
    engine.backward(loss)
    engine.step()
    losses.append(float(loss))
found = []
for each in engine.module.parameters():
    with deepspeed.zero.GatheredParameters([each], enabled=stage == 3):
        found.append(each.detach().clone())
tell(losses, found)
torch.distributed.destroy_process_group()
