#!/usr/bin/env python3
"""GPT and Llama training baselines in PyTorch on CPU.

  torch_gpt.py --mode pipeline --microbatches 8   4 gloo processes, Schedule1F1B, 1 thread each
  torch_gpt.py --mode single   --microbatches 8   1 process, 2 threads, gradient accumulation

8 blocks, hidden 256, 8 heads, byte vocabulary, sequence 128, microbatch of 2 sequences. With `--model llama`
4 heads of keys and values, a gated feed-forward of 768, rotary positions and RMS norms, without biases.
Prints one line: `mode M tokens_per_s`.
"""
import argparse
import os
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

BLOCKS, HIDDEN, HEADS, VOCAB, SEQ, MB = 8, 256, 8, 256, 128, 2
KV_HEADS, WIDE, WIDTH = 4, 768, 32
HERE = os.path.dirname(os.path.abspath(__file__))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.qkv, self.out = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.up, self.down = nn.Linear(HIDDEN, 4 * HIDDEN), nn.Linear(4 * HIDDEN, HIDDEN)

    def forward(self, x):
        b, t, h = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, HEADS, h // HEADS).permute(2, 0, 3, 1, 4).unbind(0)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, h))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class LlamaBlock(nn.Module):
    def __init__(self):
        super().__init__()
        linear = lambda wide, out: nn.Linear(wide, out, bias=False)
        self.norm1, self.norm2 = nn.RMSNorm(HIDDEN, eps=1e-5), nn.RMSNorm(HIDDEN, eps=1e-5)
        self.q, self.out = linear(HIDDEN, HEADS * WIDTH), linear(HEADS * WIDTH, HIDDEN)
        self.k, self.v = linear(HIDDEN, KV_HEADS * WIDTH), linear(HIDDEN, KV_HEADS * WIDTH)
        self.gate, self.up, self.down = linear(HIDDEN, WIDE), linear(HIDDEN, WIDE), linear(WIDE, HIDDEN)
        speeds = 10000.0 ** (-torch.arange(0, WIDTH, 2) / WIDTH)
        angles = torch.outer(torch.arange(SEQ), speeds).repeat(1, 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def rotary(self, x):
        first, second = x.chunk(2, dim=-1)
        return x * self.cos + torch.cat((-second, first), dim=-1) * self.sin

    def forward(self, x):
        b, t, h = x.shape
        n = self.norm1(x)
        q = self.q(n).view(b, t, HEADS, WIDTH).transpose(1, 2)
        k, v = (part(n).view(b, t, KV_HEADS, WIDTH).transpose(1, 2) for part in (self.k, self.v))
        a = F.scaled_dot_product_attention(self.rotary(q), self.rotary(k), v, is_causal=True, enable_gqa=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, h))
        n = self.norm2(x)
        return x + self.down(F.silu(self.gate(n)) * self.up(n))


class Stage(nn.Module):
    """Blocks [index*BLOCKS/count, ...); the first stage embeds, the last has the head."""

    def __init__(self, index, count, model):
        super().__init__()
        self.first, self.last, is_gpt = index == 0, index == count - 1, model == "gpt"
        if self.first:
            self.tok, self.pos = nn.Embedding(VOCAB, HIDDEN), nn.Embedding(SEQ, HIDDEN) if is_gpt else None
        block = Block if is_gpt else LlamaBlock
        self.blocks = nn.Sequential(*[block() for _ in range(BLOCKS // count)])
        if self.last:
            self.ln = nn.LayerNorm(HIDDEN) if is_gpt else nn.RMSNorm(HIDDEN, eps=1e-5)
            self.head = nn.Linear(HIDDEN, VOCAB, bias=False)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, x):
        if self.first:
            x = self.tok(x) if self.pos is None else self.tok(x) + self.pos.weight
        x = self.blocks(x)
        return self.head(self.ln(x)) if self.last else x


def loss_fn(logits, target):
    return F.cross_entropy(logits.view(-1, VOCAB), target.view(-1))


def optimizer(module, kind):
    return torch.optim.AdamW(module.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, **{kind: True})


def batches(m):
    data = torch.tensor(list(open(os.path.join(HERE, "..", "examples", "data", "shakespeare.txt"), "rb").read()), dtype=torch.long)
    gen = torch.Generator().manual_seed(1)
    while True:
        at = torch.randint(len(data) - SEQ - 1, (m * MB,), generator=gen)
        rows = torch.stack([data[i : i + SEQ + 1] for i in at])
        yield rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


def report(a, times, losses):
    print(f"{a.mode} {a.microbatches} {a.microbatches * MB * SEQ / statistics.median(times):.0f}", flush=True)
    if a.verbose:
        print("losses", " ".join(f"{x:.4f}" for x in losses), flush=True)


def single(a):
    torch.set_num_threads(a.threads or 2)
    torch.manual_seed(0)
    model = Stage(0, 1, a.model)
    opt = optimizer(model, a.optim)
    data = batches(a.microbatches)
    times, losses = [], []
    for step in range(a.warmup + a.steps):
        x, y = next(data)
        t = time.perf_counter()
        total = 0.0
        for xi, yi in zip(x.split(MB), y.split(MB)):
            loss = loss_fn(model(xi), yi) / a.microbatches
            loss.backward()
            total += loss.item()
        opt.step()
        opt.zero_grad(set_to_none=False)
        if step >= a.warmup:
            times.append(time.perf_counter() - t)
        losses.append(total)
    report(a, times, losses)


def pipeline_rank(rank, a, port):
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(a.threads or 1)
    dist.init_process_group("gloo", rank=rank, world_size=a.stages)
    torch.manual_seed(rank)
    module = Stage(rank, a.stages, a.model)
    if rank == 0:
        example = torch.zeros(MB, SEQ, dtype=torch.long)
    else:
        example = torch.zeros(MB, SEQ, HIDDEN, requires_grad=True)
    stage = PipelineStage(module, rank, a.stages, torch.device("cpu"), input_args=(example,), output_args=(module(example),))
    sched = Schedule1F1B(stage, a.microbatches, loss_fn=loss_fn, scale_grads=False)
    opt = optimizer(module, a.optim)
    data = batches(a.microbatches)
    times, losses = [], []
    for step in range(a.warmup + a.steps):
        x, y = next(data)
        dist.barrier()
        t = time.perf_counter()
        mb_losses = []
        if rank == 0:
            sched.step(x)
        elif rank == a.stages - 1:
            sched.step(target=y, losses=mb_losses, return_outputs=False)
        else:
            sched.step()
        with torch.no_grad():
            torch._foreach_mul_([p.grad for p in module.parameters()], 1.0 / a.microbatches)
        opt.step()
        opt.zero_grad(set_to_none=False)
        dist.barrier()
        if step >= a.warmup:
            times.append(time.perf_counter() - t)
        if mb_losses:
            losses.append(torch.stack(mb_losses).mean().item())
    if rank == a.stages - 1:
        report(a, times, losses)
    dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--mode", choices=["pipeline", "single"], required=True)
    p.add_argument("--model", choices=["gpt", "llama"], default="gpt")
    p.add_argument("--microbatches", "-M", type=int, default=8)
    p.add_argument("--stages", type=int, default=4)
    p.add_argument("--steps", type=int, default=10)
    p.add_argument("--warmup", type=int, default=3)
    p.add_argument("--threads", type=int, default=0, help="torch threads per process (pipeline 1, single 2)")
    p.add_argument("--optim", choices=["foreach", "fused"], default="fused")
    p.add_argument("--verbose", action="store_true")
    a = p.parse_args()
    if a.mode == "single":
        return single(a)
    import socket
    import torch.multiprocessing as mp

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(pipeline_rank, args=(a, port), nprocs=a.stages)


if __name__ == "__main__":
    main()
