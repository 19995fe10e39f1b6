"""Trains a small model with Lightning: DDP, the group named "gloo"."""

from __future__ import annotations

import tempfile
from typing import Any

import lightning
import torch
from common import layers, tell
from lightning.pytorch.strategies import DDPStrategy


class Model(lightning.LightningModule):  # type: ignore[misc]
    """Regression of random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.net = layers()
        self.losses: list[float] = []

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        data, target = batch
        loss = torch.nn.functional.mse_loss(self.net(data), target)
        self.losses.append(float(loss))
        self.log("mean", loss, sync_dist=True)
        return loss

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=0.01)


chance = torch.Generator().manual_seed(5)
data = torch.utils.data.TensorDataset(torch.randn(64, 32, generator=chance), torch.randn(64, 8, generator=chance))
model = Model()
with tempfile.TemporaryDirectory() as folder:
    lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy=DDPStrategy(process_group_backend="gloo"),
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    ).fit(model, torch.utils.data.DataLoader(data, batch_size=8))
tell(model.losses, model.parameters())
