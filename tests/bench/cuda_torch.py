"""cuda_bench in PyTorch: the same model, numbers of the same kind, steps and precision, eager and compiled.

    python3 tests/bench/cuda_torch.py

The dense part of DeepFM: rows of 26 fields of width 16 and 13 dense values on the device, factorisation machine, tower 400-400-400,
Adam on the tower, a gradient for the rows. 10 steps to warm up, 50 timed. The loss must be finite and the tower must have moved.
"""
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

FIELDS, WIDTH, DENSE, TOWER = 26, 16, 13, 400
WARM, STEPS = 10, 50


def bench(batch, tf32, compiled):
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.manual_seed(1)
    sizes = [FIELDS * WIDTH + DENSE, TOWER, TOWER, TOWER]
    layers = []
    for i in range(3):
        layers += [nn.Linear(sizes[i], sizes[i + 1]), nn.ReLU()]
    tower = nn.Sequential(*layers, nn.Linear(TOWER, 1)).cuda()
    fields = (0.1 * (torch.rand(batch, FIELDS, WIDTH, device="cuda") - 0.5)).requires_grad_()
    wide = (0.1 * (torch.rand(batch, 1, device="cuda") - 0.5)).requires_grad_()
    dense = 0.1 * (torch.rand(batch, DENSE, device="cuda") - 0.5)
    label = (torch.rand(batch, 1, device="cuda") < 0.25).float()

    def forward(rows, first):
        total = rows.sum(1)
        fm = 0.5 * (total * total - (rows * rows).sum(1)).sum(1, keepdim=True)
        logit = first + fm + tower(torch.cat([rows.flatten(1), dense], 1))
        return F.binary_cross_entropy_with_logits(logit, label)

    run = torch.compile(forward) if compiled else forward
    adam = torch.optim.Adam(tower.parameters(), lr=1e-3, fused=True)
    before = tower[0].weight.detach().clone()
    for step in range(WARM + STEPS):
        if step == WARM:
            torch.cuda.synchronize()
            start = time.perf_counter()
        adam.zero_grad(set_to_none=True)
        fields.grad = wide.grad = None
        loss = run(fields, wide)
        loss.backward()
        adam.step()
    torch.cuda.synchronize()
    seconds = (time.perf_counter() - start) / STEPS
    if not math.isfinite(loss.item()) or torch.equal(before, tower[0].weight):
        raise SystemExit("the model did not train: no figure")
    print(f"torch deepfm batch={batch} precision={'tf32' if tf32 else 'fp32'} mode={'compiled' if compiled else 'eager'} "
          f"step_ms={seconds * 1e3:.3f} examples_per_s={batch / seconds:.0f}", flush=True)


if __name__ == "__main__":
    if not torch.cuda.is_available():
        raise SystemExit("skipped: no CUDA device")
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name(0)}")
    for precision in (False, True):
        for size in (8192, 65536):
            for mode in (False, True):
                bench(size, precision, mode)
