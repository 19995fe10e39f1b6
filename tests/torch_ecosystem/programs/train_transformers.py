"""Trains a tiny Llama, made from a configuration, with the Trainer of transformers and DDP."""

from __future__ import annotations

import tempfile
from typing import Any

from common import tell, tokens
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

set_seed(0)
model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
    )
)
losses: list[float] = []


class Exact(Trainer):  # type: ignore[misc]
    """Keeps the losses as they are; the log has four digits."""

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        loss = super().training_step(*args, **kwargs)
        losses.append(float(loss))
        return loss


with tempfile.TemporaryDirectory() as folder:
    trainer = Exact(
        model=model,
        args=TrainingArguments(
            output_dir=folder,
            max_steps=6,
            per_device_train_batch_size=4,
            use_cpu=True,
            ddp_backend="gloo",
            report_to=[],
            save_strategy="no",
            logging_steps=1,
            disable_tqdm=True,
        ),
        train_dataset=tokens(64, 16, 64),
    )
    trainer.train()
    tell(losses, trainer.model.parameters())
