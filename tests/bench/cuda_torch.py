"""cuda_bench in PyTorch: the same models, numbers of the same kind, steps and precision, eager and compiled.

    python3 tests/bench/cuda_torch.py

The dense parts of DeepFM and DLRM (tests/bench/cuda_models.h): rows of 26 fields of width 16 and 13 dense values on the
device, Adam on the layers, a gradient for the rows. 10 steps to warm up, 50 timed. The loss must be finite and the
layers must have moved. In bf16 and fp16 under autocast, which keeps what lies between layers in 16 bits too; cuda_bench
rounds the factors of products alone.
"""
import contextlib
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

FIELDS, WIDTH, DENSE = 26, 16, 13
WARM, STEPS = 10, 50
AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


def mlp(*sizes, relu_behind):
    layers = []
    for i in range(len(sizes) - 1):
        layers += [nn.Linear(sizes[i], sizes[i + 1]), nn.ReLU()]
    return nn.Sequential(*(layers if relu_behind else layers[:-1])).cuda()


def deepfm(dense, wide):
    tower = mlp(FIELDS * WIDTH + DENSE, 400, 400, 400, 1, relu_behind=False)

    def logit(rows):
        total = rows.sum(1)
        fm = 0.5 * (total * total - (rows * rows).sum(1)).sum(1, keepdim=True)
        return wide + fm + tower(torch.cat([rows.flatten(1), dense], 1))

    return logit, [tower]


def dlrm(dense, wide):
    vectors = FIELDS + 1
    bottom = mlp(DENSE, 512, 256, 64, WIDTH, relu_behind=True)
    top = mlp(WIDTH + vectors * (vectors - 1) // 2, 512, 256, 1, relu_behind=False)
    # (1,0), (2,0), (2,1), ...
    first, second = torch.tril_indices(vectors, vectors, offset=-1, device="cuda")

    def logit(rows):
        x = bottom(dense)
        both = torch.cat([x.unsqueeze(1), rows], 1)
        products = torch.bmm(both, both.transpose(1, 2))
        return top(torch.cat([x, products[:, first, second]], 1))

    return logit, [bottom, top]


def bench(model, batch, precision, compiled):
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.manual_seed(1)
    fields = (0.1 * (torch.rand(batch, FIELDS, WIDTH, device="cuda") - 0.5)).requires_grad_()
    wide = (0.1 * (torch.rand(batch, 1, device="cuda") - 0.5)).requires_grad_()
    dense = 0.1 * (torch.rand(batch, DENSE, device="cuda") - 0.5)
    label = (torch.rand(batch, 1, device="cuda") < 0.25).float()
    logit, layers = model(dense, wide)

    def forward(rows):
        with torch.autocast("cuda", AUTOCAST[precision]) if precision in AUTOCAST else contextlib.nullcontext():
            return F.binary_cross_entropy_with_logits(logit(rows), label)

    # Compiled for these shapes alone.
    torch._dynamo.reset()
    run = torch.compile(forward) if compiled else forward
    adam = torch.optim.Adam([p for layer in layers for p in layer.parameters()], lr=1e-3, fused=True)
    before = layers[0][0].weight.detach().clone()
    for step in range(WARM + STEPS):
        if step == WARM:
            torch.cuda.synchronize()
            start = time.perf_counter()
        adam.zero_grad(set_to_none=True)
        fields.grad = wide.grad = None
        loss = run(fields)
        loss.backward()
        adam.step()
    torch.cuda.synchronize()
    seconds = (time.perf_counter() - start) / STEPS
    if not math.isfinite(loss.item()) or torch.equal(before, layers[0][0].weight):
        raise SystemExit("the model did not train: no figure")
    print(f"torch {model.__name__} batch={batch} precision={precision} mode={'compiled' if compiled else 'eager'} "
          f"step_ms={seconds * 1e3:.3f} examples_per_s={batch / seconds:.0f}", flush=True)


if __name__ == "__main__":
    if not torch.cuda.is_available():
        raise SystemExit("skipped: no CUDA device")
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name(0)}")
    # Compiling takes the longer part of the time: what was measured before it is not lost to a deadline.
    for mode in (False, True):
        for precision in ("fp32", "tf32", *AUTOCAST):
            for which in (deepfm, dlrm):
                for size in (8192, 65536):
                    bench(which, size, precision, mode)
