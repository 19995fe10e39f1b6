"""torchtitan's debug model by roundelay and by another backend: FSDP2, tensor parallel, both and a pipeline.

    python python/tests/torch_gpu/titan.py [--backends nccl,roundelay] [--layouts fsdp,tp] [--device cpu] [--ranks N]

Needs torchtitan 0.2 (TrainSpec): its trainer, its Llama of six layers, its optimizers, clipping and meshes run as they
are. The tokens are random numbers made here, for the wheel has no data; packages that only read data or write logs
(`datasets`, `tokenizers`, `tensorboard`, `tyro`, `torchdata`) are replaced where they are not installed. torchtitan
takes the backend from torch's table of devices (`Backend.default_device_backend_map`), in which this sets it. It knows
no CPU: with `--device cpu` the device that torch reports, and the reading of a GPU's memory, are replaced too.

Prints a line a layout with the losses of the last step, and ends with 1 if losses differ in the fifth digit.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import subprocess
import sys
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

LAYOUTS: dict[str, tuple[int, dict[str, int]]] = {
    # The ranks, and what differs from one rank without any of it.
    "fsdp": (2, {"data_parallel_shard_degree": 2}),
    "hsdp": (2, {"data_parallel_shard_degree": 1, "data_parallel_replicate_degree": 2}),
    "tp": (2, {"tensor_parallel_degree": 2}),
    "pp": (2, {"pipeline_parallel_degree": 2}),
    "fsdp+tp": (4, {"data_parallel_shard_degree": 2, "tensor_parallel_degree": 2}),
    "fsdp+pp": (4, {"data_parallel_shard_degree": 2, "pipeline_parallel_degree": 2}),
}
REPLACED = {
    # What is not installed: modules, and the classes in them that are inherited from.
    "datasets": ["datasets", "datasets.distributed"],
    "tokenizers": ["tokenizers"],
    "tyro": ["tyro"],
    "tensorboard": ["torch.utils.tensorboard"],
    "torchdata": ["torchdata", "torchdata.stateful_dataloader"],
}


def replace_missing() -> list[str]:
    """Put stand-ins in the place of packages that are not installed; return their names."""
    missing = []
    for name, modules in REPLACED.items():
        try:
            importlib.import_module(name)
            continue
        except ImportError:
            missing.append(name)
        for module in modules:
            made: Any = MagicMock(name=module, __path__=[], __spec__=None)
            if module == "torchdata.stateful_dataloader":
                made = types.ModuleType(module)
                made.StatefulDataLoader = type("StatefulDataLoader", (), {})
            sys.modules[module] = made
    return missing


def replace_device() -> None:
    """Have torchtitan find the CPU where it looks for an accelerator."""
    import torch

    torch._utils._get_available_device_type = lambda: "cpu"
    memory = types.SimpleNamespace(total_memory=1 << 34)
    named: dict[str, Any] = {
        "get_device_name": lambda device=None: "CPU",
        "get_device_properties": lambda device=None: memory,
        "memory_stats": lambda device=None: {},
        "reset_peak_memory_stats": lambda: None,
        "empty_cache": lambda: None,
        "current_device": lambda: 0,
    }
    for name, function in named.items():
        setattr(torch.cpu, name, function)


class RandomTokens:
    """Batches of numbers, which depend on the seed, the data parallel rank and the step alone."""

    def __init__(self, dp_world_size: int, dp_rank: int, tokenizer: Any, job_config: Any) -> None:
        import torch

        training = job_config.training
        self.shape = (training.local_batch_size, training.seq_len + 1)
        self.chance = torch.Generator().manual_seed(1000 + dp_rank)

    def __iter__(self) -> Iterator[Any]:
        import torch

        while True:
            # Each number follows from the one before, so there is something to learn.
            first = torch.randint(0, 2048, (self.shape[0], 1), generator=self.chance)
            tokens = (first + 7 * torch.arange(self.shape[1])) % 2048
            yield {"input": tokens[:, :-1].contiguous()}, tokens[:, 1:].contiguous()

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


def train(options: argparse.Namespace, backend: str, layout: str, file: str) -> None:
    """Train as one rank, and have rank 0 write the losses and the norms of the gradient of all steps."""
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import FSDPModule

    import roundelay.torch

    roundelay.torch.register()
    replaced = replace_missing()
    if options.device == "cpu":
        replace_device()
    import torchtitan
    from torchtitan.config import JobConfig
    from torchtitan.protocols import train_spec
    from torchtitan.train import Trainer

    dist.Backend.default_device_backend_map[options.device] = backend
    spec = train_spec.get_train_spec("llama3")
    spec.build_dataloader_fn, spec.build_tokenizer_fn = RandomTokens, None
    train_spec.register_train_spec("debug", spec)
    config = JobConfig()
    config.job.dump_folder = str(Path(file).parent)
    config.model.name, config.model.flavor = "debug", "debugmodel"
    config.training.steps, config.training.seq_len = options.steps, options.length
    config.training.local_batch_size = 4
    config.training.mixed_precision_param = options.dtype
    config.lr_scheduler.warmup_steps = 2
    config.optimizer.implementation = "foreach" if options.device == "cpu" else "fused"
    config.metrics.log_freq = 1
    config.debug.seed, config.debug.deterministic = 1, True
    config.activation_checkpoint.mode = "selective"
    for name, value in LAYOUTS[layout][1].items():
        setattr(config.parallelism, name, value)
    trainer = Trainer(config)
    losses: list[float] = []
    norms: list[float] = []

    def log(step: int, mean: float, most: float, norm: float, **more: Any) -> None:
        losses.append(float(mean))
        norms.append(float(norm))

    trainer.metrics_processor.log = log
    if backend == "gloo":  # It has no PREMUL_SUM, by which FSDP scales gradients for torchtitan.
        for each in (module for part in trainer.model_parts for module in part.modules()):
            if isinstance(each, FSDPModule):
                each.set_force_sum_reduction_for_comms(True)
    trainer.train()
    trainer.close()
    name = dist.get_backend()
    last = dist.get_rank() == dist.get_world_size() - 1
    dist.destroy_process_group()
    if last:  # Of a pipeline, the rank that has the loss.
        found = {"losses": losses, "norms": norms, "backend": name, "replaced": replaced}
        versions = {"torch": torch.__version__, "torchtitan": getattr(torchtitan, "__version__", "")}
        Path(file).write_text(json.dumps(found | versions))


def run(options: argparse.Namespace, backend: str, layout: str, folder: Path) -> dict[str, Any]:
    """Run the ranks of one layout by one backend; return what the last one has written, or why it has not."""
    file = folder / f"{layout}-{backend}.json"
    rank = [__file__, "--device", options.device, "--steps", str(options.steps), "--length", str(options.length)]
    rank += ["--dtype", options.dtype, "--rank", json.dumps([backend, layout, str(file)])]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(LAYOUTS[layout][0]), *rank]
    environment = {"NCCL_NVLS_ENABLE": "0", "OMP_NUM_THREADS": "1", **os.environ}
    try:
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=options.limit)
    except subprocess.TimeoutExpired:
        return {"error": f"it has not ended in {options.limit:g} s"}
    (folder / f"{layout}-{backend}.txt").write_text(ended.stdout + ended.stderr)
    if ended.returncode or not file.exists():
        lines = [line for line in (ended.stdout + ended.stderr).splitlines() if "Error: " in line]
        return {"error": lines[0] if lines else f"torchrun ended with {ended.returncode}"}
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def compare(one: dict[str, Any], other: dict[str, Any], tolerance: float) -> str:
    """Return in what two runs differ, or nothing."""
    for run in (one, other):
        if "error" in run:
            return str(run["error"])
    for name in ("losses", "norms"):
        if len(one[name]) != len(other[name]) or not one[name]:
            return f"{len(one[name])} and {len(other[name])} {name}"
        for step, (left, right) in enumerate(zip(one[name], other[name], strict=True)):
            if not math.isclose(left, right, rel_tol=tolerance):
                return f"{name} of step {step + 1}: {left!r} and {right!r}"
    if one["losses"][-1] >= one["losses"][0]:
        return f"nothing was learned: {one['losses']}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--backends", help="the first is what the others are compared with")
    parser.add_argument("--layouts", default="fsdp,tp,pp", help=", ".join(LAYOUTS))
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--length", type=int, default=128, help="tokens of a sequence")
    parser.add_argument("--dtype", default="float32", help="of FSDP's parameters: float32 or bfloat16")
    parser.add_argument("--tolerance", type=float, default=1e-5)
    parser.add_argument("--limit", type=float, default=150.0, help="seconds that one run may take")
    parser.add_argument("--folder", help="what ranks write stays there")
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        train(options, *json.loads(options.rank))
        return 0
    reference = "nccl" if options.device == "cuda" else "gloo"
    backends = (options.backends or f"{reference},roundelay").split(",")
    status = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(options.folder or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for layout in options.layouts.split(","):
            found = {backend: run(options, backend, layout, folder) for backend in backends}
            for backend in backends[1:]:
                wrong = compare(found[backends[0]], found[backend], options.tolerance)
                losses = {name: each["losses"][-1] for name, each in found.items() if "losses" in each}
                print(f"{layout:8} {backend:10} {wrong or 'same'}  last losses {losses}", flush=True)
                status |= bool(wrong)
            first = found[backends[0]]
            if "losses" in first:
                print(f"{'':8} torch {first['torch']}, replaced: {first['replaced'] or 'nothing'}", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
