"""PyTorch's CPU attention on the table of attention_bench.cpp, or on one shape.

  attention_peer.py [threads [f32|bf16]]
  attention_peer.py threads B H G T S D causal|full [f32|bf16]
"""
import sys
import time

import torch

CASES = [(4, 12, 12, 512, 512, 64, True), (2, 12, 12, 1024, 1024, 64, True),
         (1, 12, 12, 2048, 2048, 64, True), (1, 12, 12, 2048, 2048, 64, False),
         (1, 4, 4, 4096, 4096, 64, True), (1, 2, 2, 8192, 8192, 64, True),
         (1, 8, 2, 1024, 1024, 64, True), (1, 16, 16, 1024, 1024, 128, True),
         (16, 8, 8, 128, 128, 32, True), (1, 12, 12, 1, 2048, 64, True),
         (1, 32, 8, 1, 2048, 128, True)]
dtype = torch.bfloat16 if sys.argv[-1] == "bf16" else torch.float32
if len(sys.argv) > 8:
    CASES = [(*map(int, sys.argv[2:8]), sys.argv[8] == "causal")]


# One thread is timed by its processor time, which a busy neighbour disturbs less.
threads = int(sys.argv[1]) if len(sys.argv) > 1 else 2
torch.set_num_threads(threads)
clock = time.process_time if threads == 1 else time.perf_counter


def turn(f, calls):
    start = clock()
    for _ in range(calls):
        f()
    return (clock() - start) / calls


def best(f):
    """Of turns of some 20 ms, as attention_bench takes them."""
    f()
    calls = max(1, int(0.02 / max(turn(f, 1), 1e-7)))
    return min(turn(f, calls) for _ in range(12))


for b, h, g, t, s, d, causal in CASES:
    make = lambda n, heads: torch.randn(b, n, heads, d, dtype=dtype).transpose(1, 2).requires_grad_(t > 1)
    q, k, v = make(t, h), make(s, g), make(s, g)
    attend = lambda: torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=causal and t > 1, enable_gqa=h != g)
    forward, backward = best(attend), 0.0
    flops = 4.0 * b * h * d * (t * s - (t * (t - 1) / 2 if causal else 0))
    line = f"{threads} B{b} H{h}/{g} T{t} S{s} D{d} {'causal' if causal else 'full':6}: "
    line += f"forward {forward * 1e3:8.3f} ms {flops / forward * 1e-9:6.1f} GFLOP/s"
    if t > 1:
        out = attend()
        gradient = torch.randn_like(out)
        backward = best(lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True))
        line += f", backward {backward * 1e3:8.3f} ms {2.5 * flops / backward * 1e-9:6.1f} GFLOP/s"
    print(line)
