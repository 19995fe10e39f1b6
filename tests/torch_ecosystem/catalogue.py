"""The programs: which package each is of, how it is run, and what counts as the same outcome."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent

Command = Callable[[], list[str]]


@dataclass
class Program:
    """One program. `kind`: `ranks` (two processes, as torchrun starts them), `pytest` (one process), or `alone` (one
    process, which starts others itself).

    `before` is code that runs once, alone, before the first run: what a program compiles at its first use takes long.
    """

    name: str
    package: str
    command: Command
    kind: str = "ranks"
    seconds: float = 180.0
    environment: dict[str, str] = field(default_factory=dict)
    replaced: str = "gloo"
    source: str = ""
    before: str = ""

    def missing(self, sources: Path | None) -> str:
        """Return why it cannot be run, or nothing."""
        if self.source:
            if sources is None or not (sources / self.source).is_dir():
                return f"no checkout of {self.source}: ROUNDELAY_ECOSYSTEM_SOURCES names a folder that has it"
            return ""
        try:
            importlib.metadata.version(self.package)
        except importlib.metadata.PackageNotFoundError:
            return f"the package {self.package} could not be installed"
        return ""

    def version(self) -> str:
        """Return the version of its package, or of its checkout."""
        return "checkout" if self.source else importlib.metadata.version(self.package)


def _module(name: str) -> Command:
    return lambda: ["-m", name]


OPERATIONS = (
    "import accelerate as a; a.PartialState(cpu=True); "
    "from accelerate.test_utils.scripts.test_ops import main; main()"
)
"""It makes a state of its own, which is of one process on CPU unless there is one already."""


def _code(text: str) -> Command:
    return lambda: ["-c", text]


def _own(name: str, *arguments: str) -> Command:
    return lambda: [str(HERE / "programs" / f"{name}.py"), *arguments]


def _tests(package: str, name: str, *options: str) -> Command:
    def command() -> list[str]:
        found = importlib.util.find_spec(package)
        assert found is not None and found.origin is not None
        path = str(Path(found.origin).parent / name)
        return ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "120", path, *options]

    return command


CPU = {"ACCELERATE_USE_CPU": "true"}
OPTIMIZER = {"DS_ACCELERATOR": "cpu", "DS_SKIP_CUDA_CHECK": "1"}
OPERATORS = (
    "import deepspeed as d; from deepspeed.accelerator import get_accelerator as a; "
    "b = a().create_op_builder('ShareMemCommBuilder'); d.ops.__compatible_ops__.get(b.NAME) and b.load()"
)
"""What `deepspeed.init_distributed` loads, and compiles where it is not there."""
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_allv", "broadcast", "reduce", "gather", "scatter")
TRAINED = (("hsdp",), ("diloco",), ("streaming", "--recover", "group"))
"""The programs of `train_torchft.py`, the last with the state through the process group."""
TRAINING = 600.0
"""The seconds that three runs of one may take, each of which has a limit of its own."""
WITHOUT_GLOO = {"reduce_scatter", "all_to_allv"}
"""Collectives of PARAM that may be missing in Gloo, depending on its version."""

SCRIPTS = (
    "allgather", "allreduce", "alltoall", "alltoallv", "barrier", "bcast", "gather", "init", "multiple_comms", "pt2pt",
    "reduce_scatter", "reduce", "sendrecv", "timeout", "work",
)  # fmt: skip


def programs(sources: Path | None) -> list[Program]:
    """Return all programs."""
    accelerate = "accelerate.test_utils.scripts."
    found = [
        Program("accelerate test_ops", "accelerate", _code(OPERATIONS), environment=CPU),
        Program("accelerate test_sync", "accelerate", _module(accelerate + "test_sync"), environment=CPU),
        Program("accelerate test_script", "accelerate", _module(accelerate + "test_script"), environment=CPU, seconds=300),
        Program("transformers Trainer, DDP", "transformers", _own("train_transformers"), environment=CPU),
        Program("lightning DDP", "lightning", _own("train_lightning")),
        Program(
            "deepspeed ZeRO-1", "deepspeed", _own("train_deepspeed", "1"), environment=OPTIMIZER, before=OPERATORS
        ),
        Program(
            "deepspeed ZeRO-3", "deepspeed", _own("train_deepspeed", "3"), environment=OPTIMIZER, before=OPERATORS
        ),
        Program("torchft manager_integ", "torchft", _tests("torchft", "manager_integ_test.py"), "pytest", 300),
        Program("torchft local_sgd_integ", "torchft", _tests("torchft", "local_sgd_integ_test.py"), "pytest", 500),
        Program(
            "torchft process_group",
            "torchft",
            # Groups in processes of their own have Gloo's class in their code.
            _tests("torchft", "process_group_test.py", "-k", "not Baby and not baby"),
            "pytest",
            300,
        ),
    ]
    for name, *options in TRAINED:
        found.append(
            Program(f"torchft train {name}", "torchft", _own("train_torchft", name, *options), "alone", TRAINING)
        )
    for collective in COLLECTIVES:
        command = (
            "-m param_bench.train.comms.pt.comms --backend gloo --device cpu --b 8 --e 256K --n 5 --w 2 --f 8 --z 1 --c 1 "
            f"--collective {collective}"
        ).split()
        found.append(Program(f"PARAM {collective}", "", lambda command=command: command, source="param_bench"))  # type: ignore[misc]
    for script in SCRIPTS:
        path = str((sources or HERE) / "torch_ucc" / "test" / f"torch_{script}_test.py")
        found.append(
            Program(
                f"torch_ucc {script}",
                "",
                lambda path=path: [path, "--backend", "gloo"],  # type: ignore[misc]
                replaced="ucc",
                source="torch_ucc",
                environment={"TORCHELASTIC_USE_AGENT_STORE": ""},
            )
        )
    return found
