"""loss/in_batch_softmax of kernels_bench in PyTorch: the same shapes and values of the same kind.

Prints milliseconds for the loss and its gradients by query and item.

    python3 tests/bench/in_batch_softmax_torch.py --threads=2
"""
import argparse
import time

import torch
import torch.nn.functional as F

BATCH, WIDTH, TEMPERATURE = 4096, 64, 0.2


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    query = F.normalize(torch.rand(BATCH, WIDTH) * 2 - 1).requires_grad_()
    item = F.normalize(torch.rand(BATCH, WIDTH) * 2 - 1).requires_grad_()
    target = torch.arange(BATCH)

    def loss_of(query, item):
        return F.cross_entropy(query @ item.T / TEMPERATURE, target)

    loss = torch.compile(loss_of) if args.compile else loss_of
    times = []
    for step in range(args.steps + 5):
        query.grad = item.grad = None
        begin = time.perf_counter()
        value = loss(query, item)
        value.backward()
        if step >= 5:
            times.append(time.perf_counter() - begin)
    assert torch.isfinite(value) and query.grad.abs().sum() > 0 and item.grad.abs().sum() > 0
    times.sort()
    print(f"torch {torch.__version__} threads={args.threads} compiled={args.compile} "
          f"loss={value.item():.5f} median={times[len(times) // 2] * 1000:.1f} ms")


if __name__ == "__main__":
    main()
