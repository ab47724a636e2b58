#!/usr/bin/env python3
"""Independent float64 reference for a tiny GPT: writes reference_gpt.json and reference_gpt_mixed.json.

Everything is defined by formulas (below and in the JSON's "spec"), so that another
implementation can reproduce the start state and compare losses and checksums.
"""
import json
import math
import os

import torch
import torch.nn.functional as F

V, H, HEADS, BLOCKS, T, ROWS, MBS, STEPS = 32, 16, 2, 2, 8, 2, 2, 4
ADAMW = dict(lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
SGD = dict(lr=0.1)

NAMES = [("embedding", (V, H)), ("position", (T, H))]
for b in range(BLOCKS):
    NAMES += [(f"block{b}.{n}", s) for n, s in [
        ("ln1.gain", (H,)), ("ln1.bias", (H,)), ("qkv.weight", (H, 3 * H)), ("qkv.bias", (3 * H,)),
        ("attn_out.weight", (H, H)), ("attn_out.bias", (H,)), ("ln2.gain", (H,)), ("ln2.bias", (H,)),
        ("mlp_up.weight", (H, 4 * H)), ("mlp_up.bias", (4 * H,)), ("mlp_down.weight", (4 * H, H)), ("mlp_down.bias", (H,))]]
NAMES += [("final_ln.gain", (H,)), ("final_ln.bias", (H,)), ("head.weight", (H, V))]


# argument of the sine, by parameter number i and element j
FORMULAS = {
    "plain": ("0.7*i + 0.013*j*(1 + i%3)", lambda i, j: 0.7 * i + 0.013 * j * (1 + i % 3)),
    # full-rank matrices and well spread rows: much better conditioned (see float32_deviation)
    "mixed": ("0.7*i + 0.9*j + 0.03*j*j", lambda i, j: 0.7 * i + 0.9 * j + 0.03 * j * j),
}
FORMULA = "plain"


def init(dtype):
    out = []
    arg = FORMULAS[FORMULA][1]
    for i, (name, shape) in enumerate(NAMES):
        base = 1.0 if name.endswith("gain") else 0.0
        vals = [base + 0.2 * math.sin(arg(i, j)) for j in range(math.prod(shape))]
        out.append(torch.tensor(vals, dtype=torch.float64).view(shape).to(dtype).requires_grad_())
    return out


def token(t, row, mb, step):
    return (7 * t + 3 * row + 11 * mb + 5 * step) % V


def batch(mb, step):
    x = torch.tensor([[token(t, r, mb, step) for t in range(T)] for r in range(ROWS)])
    y = torch.tensor([[token(t + 1, r, mb, step) for t in range(T)] for r in range(ROWS)])
    return x, y


def forward(p, x):
    it = iter(p)
    emb, pos = next(it), next(it)
    h = emb[x] + pos
    mask = torch.ones(T, T, dtype=torch.bool).tril()
    d = H // HEADS
    for _ in range(BLOCKS):
        g1, b1, wqkv, bqkv, wo, bo, g2, b2, wu, bu, wd, bd = (next(it) for _ in range(12))
        n = F.layer_norm(h, (H,), g1, b1, 1e-5)
        q, k, v = (n @ wqkv + bqkv).split(H, dim=-1)
        q, k, v = (z.view(ROWS, T, HEADS, d).transpose(1, 2) for z in (q, k, v))
        s = (q @ k.transpose(-1, -2)) / math.sqrt(d)
        a = torch.softmax(s.masked_fill(~mask, -math.inf), dim=-1) @ v
        h = h + a.transpose(1, 2).reshape(ROWS, T, H) @ wo + bo
        n = F.layer_norm(h, (H,), g2, b2, 1e-5)
        h = h + F.gelu(n @ wu + bu, approximate="tanh") @ wd + bd
    g, b, head = it
    return F.layer_norm(h, (H,), g, b, 1e-5) @ head


def checksums(tensors):
    """Per tensor: sum, and sum of x[j] * (1 + j % 7)."""
    out = []
    for t in tensors:
        v = t.detach().double().reshape(-1)
        w = 1.0 + (torch.arange(v.numel()) % 7).double()
        out.append([v.sum().item(), (v * w).sum().item()])
    return out


def adamw_by_hand(p, state, step):
    (b1, b2), lr, eps, wd = ADAMW["betas"], ADAMW["lr"], ADAMW["eps"], ADAMW["weight_decay"]
    with torch.no_grad():
        for x, s in zip(p, state):
            s["m"] = b1 * s["m"] + (1 - b1) * x.grad
            s["v"] = b2 * s["v"] + (1 - b2) * x.grad**2
            mh, vh = s["m"] / (1 - b1 ** (step + 1)), s["v"] / (1 - b2 ** (step + 1))
            x.mul_(1 - lr * wd).sub_(lr * mh / (vh.sqrt() + eps))


def train(kind, dtype, by_hand=False):
    p = init(dtype)
    opt = torch.optim.AdamW(p, **ADAMW) if kind == "adamw" else torch.optim.SGD(p, **SGD)
    state = [dict(m=torch.zeros_like(x), v=torch.zeros_like(x)) for x in p]
    out = []
    for step in range(STEPS):
        opt.zero_grad()
        mb_losses = []
        for mb in range(MBS):
            x, y = batch(mb, step)
            loss = F.cross_entropy(forward(p, x).reshape(-1, V), y.reshape(-1))
            (loss / MBS).backward()
            mb_losses.append(loss.item())
        grads = checksums([x.grad for x in p])
        norm = math.sqrt(sum(x.grad.double().pow(2).sum().item() for x in p))
        if by_hand and kind == "adamw":
            adamw_by_hand(p, state, step)
        else:
            opt.step()
        out.append(dict(loss=sum(mb_losses) / MBS, microbatch_losses=mb_losses, grad_norm=norm,
                        grad_checksums=grads, param_checksums=checksums(p)))
    return out, p


def finite_difference_error():
    """The gradient of step 0 against central differences, for one element of every tensor."""
    p = init(torch.float64)

    def total():
        return sum(F.cross_entropy(forward(p, batch(mb, 0)[0]).reshape(-1, V), batch(mb, 0)[1].reshape(-1)) for mb in range(MBS)) / MBS

    total().backward()
    worst = 0.0
    for x in p:
        j = x.numel() // 2
        with torch.no_grad():
            f, e = x.view(-1), 1e-6
            f[j] += e
            up = total().item()
            f[j] -= 2 * e
            down = total().item()
            f[j] += e
        worst = max(worst, abs((up - down) / (2 * e) - x.grad.view(-1)[j].item()))
    return worst


def main():
    global FORMULA
    here = os.path.dirname(os.path.abspath(__file__))
    for FORMULA, name in [("plain", "reference_gpt.json"), ("mixed", "reference_gpt_mixed.json")]:
        print("==", name)
        write(os.path.join(here, name))


def write(path):
    torch.set_num_threads(1)
    res, f32 = {}, {}
    for kind in ("adamw", "sgd"):
        res[kind], p = train(kind, torch.float64)
        hand, ph = train(kind, torch.float64, by_hand=True)
        diff = max((a - b).abs().max().item() for a, b in zip(p, ph))
        low, pl = train(kind, torch.float32)
        print(f"{kind}: losses", [s["loss"] for s in res[kind]], f"| library vs by-hand update {diff:.1e}")
        per = [(a - b).abs().max().item() for a, b in zip(p, pl)]
        f32[kind] = dict(
            loss=max(abs(a["loss"] - b["loss"]) for a, b in zip(res[kind], low)),
            param_by_tensor=per)
        print(f"{kind}: float32 deviates: loss {f32[kind]['loss']:.1e}, worst parameter",
              *max(zip(per, (n for n, _ in NAMES))))
    fd = finite_difference_error()
    print(f"finite differences: worst {fd:.1e}")
    assert fd < 1e-7
    doc = dict(
        spec=dict(
            model="pre-norm GPT: h = embedding[token] + position; per block h += proj(attention(ln1(h))), h += down(gelu_tanh(up(ln2(h)))); logits = final_ln(h) @ head",
            vocabulary=V, hidden=H, heads=HEADS, blocks=BLOCKS, sequence=T, rows_per_microbatch=ROWS, microbatches=MBS, steps=STEPS, layer_norm_eps=1e-5,
            init="parameter i (order of `parameters`), element j (row-major): 0.2*sin(" + FORMULAS[FORMULA][0] + "), plus 1 for layer-norm gains; weights are [in, out]",
            tokens="token(t,row,mb,step) = (7t + 3row + 11mb + 5step) % 32, all from 0; target = token(t+1,row,mb,step)",
            loss="mean cross-entropy over all tokens of all microbatches, before the update of that step",
            qkv="columns q(16) k(16) v(16), heads contiguous inside each; scores scaled by 1/sqrt(8), causal",
            adamw=dict(lr=1e-2, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1,
                       update="p *= 1 - lr*wd; p -= lr * mhat / (sqrt(vhat) + eps); on every tensor"),
            sgd=dict(lr=0.1, momentum=0.0),
            checksums="per parameter tensor [sum x_j, sum x_j*(1 + j%7)]; grad_checksums of the step's gradient, param_checksums after its update",
            caution="the key third of qkv.bias (columns 16..32) has an exactly zero gradient in exact arithmetic; in float32 AdamW turns its rounding noise into updates of up to lr, without effect on the loss: compare qkv.bias loosely under AdamW in float32",
        ),
        parameters=[dict(name=n, shape=list(s)) for n, s in NAMES],
        initial_checksums=checksums(init(torch.float64)),
        float32_deviation=f32,
        **res)
    with open(path, "w") as f:
        json.dump(doc, f, indent=1)
        f.write("\n")


main()
