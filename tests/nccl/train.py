"""Trains a small transformer over the "nccl" backend of PyTorch: train.py ddp|fsdp|graph|compile FILE (under torchrun)
writes the losses of 50 steps and what they took; train.py compare FILE FILE compares two curves; train.py killed - is
one of two ranks, of which one is killed."""

import json
import os
import sys
import time

STEPS = 50


def compare(first, second):
    """Ends with 1 unless both curves are one."""
    with open(first) as a, open(second) as b:
        a, b = json.load(a), json.load(b)
    apart = max(abs(x - y) / max(abs(x), 1e-9) for x, y in zip(a["losses"], b["losses"]))
    same = len(a["losses"]) == len(b["losses"]) and apart < 1e-3
    print(f"NOTE last loss {a['losses'][-1]:.6f} and {b['losses'][-1]:.6f}, at most {apart:.1e} apart; "
          f"a step takes {a['step_ms']:.2f} and {b['step_ms']:.2f} ms; {a['version']} and {b['version']}")
    return 0 if same else 1


def killed():
    """Rank 1 ends in the middle; rank 0 ends well if it gets the error."""
    import datetime
    import signal

    import torch
    import torch.distributed as dist

    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    # What ends a process by itself would end this one before it has said how long that took.
    os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "2"
    dist.init_process_group("nccl", device_id=device, timeout=datetime.timedelta(seconds=300))
    data = torch.ones(1 << 20, device=device)
    for _ in range(5):
        dist.all_reduce(data)
    torch.cuda.synchronize()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.perf_counter()
    try:
        work = dist.all_reduce(data, async_op=True)
        while not work.is_completed():
            time.sleep(0.01)
        why = str(work.exception())
    except RuntimeError as error:
        why = str(error)
    print(f"NOTE error after {time.perf_counter() - began:.1f} s: {' '.join(why.split())[:300]}")
    sys.stdout.flush()
    # The communicator is broken: nothing is left to wait for.
    os._exit(0 if time.perf_counter() - began < 30 else 1)


def main(part, file):
    import torch
    import torch.distributed as dist
    from torch import nn

    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    dist.init_process_group("nccl", device_id=device)
    torch.manual_seed(7)
    torch.use_deterministic_algorithms(False)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(256, 4, 512, dropout=0.0, batch_first=True)
            self.embed = nn.Embedding(512, 256)
            self.body = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
            self.head = nn.Linear(256, 512)

        def forward(self, tokens):
            return self.head(self.body(self.embed(tokens)))

    model = Model().to(device)
    generator = torch.Generator(device="cpu").manual_seed(100 + rank)
    batches = [torch.randint(0, 512, (8, 64), generator=generator).to(device) for _ in range(4)]
    loss_of = nn.CrossEntropyLoss()
    plain = model
    if part in ("ddp", "compile"):
        model = nn.parallel.DistributedDataParallel(model, device_ids=[rank])
        if part == "compile":
            model = torch.compile(model)
    elif part == "fsdp":
        from torch.distributed.fsdp import fully_shard

        for layer in model.body.layers:
            fully_shard(layer)
        fully_shard(model)
    else:
        for parameter in model.parameters():
            dist.broadcast(parameter.data, 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def loss_and_gradients(tokens):
        out = model(tokens)
        loss = loss_of(out[:, :-1].reshape(-1, 512), tokens[:, 1:].reshape(-1))
        loss.backward()
        return loss

    losses, began = [], time.perf_counter()
    if part == "graph":
        tokens = batches[0].clone()

        def step():
            optimizer.zero_grad(set_to_none=False)
            loss = loss_and_gradients(tokens)
            for parameter in plain.parameters():
                dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)
            optimizer.step()
            mean = loss.detach().clone()
            dist.all_reduce(mean, op=dist.ReduceOp.AVG)
            return mean

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            mean = step()
        began = time.perf_counter()
        for at in range(STEPS):
            tokens.copy_(batches[at % 4])
            graph.replay()
            losses.append(mean.item())
        # NCCL 2.28.9 does not end its communicator while a graph has its calls.
        graph.reset()
    else:
        for at in range(STEPS):
            if at == 10:
                torch.cuda.synchronize()
                began = time.perf_counter()
            optimizer.zero_grad()
            loss = loss_and_gradients(batches[at % 4])
            optimizer.step()
            mean = loss.detach().clone()
            dist.all_reduce(mean, op=dist.ReduceOp.AVG)
            losses.append(mean.item())
    torch.cuda.synchronize()
    step_ms = 1e3 * (time.perf_counter() - began) / (STEPS if part == "graph" else STEPS - 10)
    # What a program asks of communicators beside training: a part, messages, objects, a barrier.
    part_group = dist.new_group([0, 1])
    ones = torch.ones(4, device=device)
    dist.all_reduce(ones, group=part_group)
    assert ones.tolist() == [2.0] * 4, ones
    sent, received = torch.full((5,), float(rank), device=device), torch.empty(5, device=device)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, 1 - rank), dist.P2POp(dist.irecv, received, 1 - rank)])
    for work in works:
        work.wait()
    assert received.tolist() == [float(1 - rank)] * 5, received
    names = [None, None]
    dist.all_gather_object(names, f"rank {rank}")
    assert names == ["rank 0", "rank 1"], names
    uneven = [torch.empty(3 + r, device=device) for r in range(2)]
    dist.all_gather(uneven, torch.full((3 + rank,), float(rank), device=device))
    assert [t.tolist() for t in uneven] == [[0.0] * 3, [1.0] * 4], uneven
    dist.barrier()
    torch.cuda.synchronize()
    if rank == 0:
        version = "NCCL of the wheel"
        if "roundelay" in os.environ.get("LD_PRELOAD", ""):
            version = "roundelay"
        version += " " + ".".join(map(str, torch.cuda.nccl.version()))
        with open(file, "w") as out:
            json.dump({"part": part, "version": version, "step_ms": step_ms, "losses": losses}, out)
            out.write("\n")
        print(f"NOTE last loss {losses[-1]:.6f}, {step_ms:.2f} ms a step, {version}")
    dist.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1] == "compare":
        sys.exit(compare(sys.argv[2], sys.argv[3]))
    if sys.argv[1] == "killed":
        killed()
    main(sys.argv[1], sys.argv[2])
