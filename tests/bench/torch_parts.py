"""What several of the programs in PyTorch beside this file measure and train by."""
import torch


def auc(scores, labels):
    """Area under the ROC curve, exact; equal scores count as half a pair."""
    order = torch.argsort(scores)
    ranks = torch.empty(len(scores), dtype=torch.double)
    _, inverse, counts = torch.unique_consecutive(scores[order], return_inverse=True, return_counts=True)
    ranks[order] = (torch.cumsum(counts, 0).double() - (counts.double() - 1) / 2)[inverse]
    positives = labels.sum().item()
    negatives = len(labels) - positives
    return ((ranks[labels > 0.5].sum() - positives * (positives + 1) / 2) / (positives * negatives)).item()


class RowAdam:
    """Adam of the rows that a step has read, each with its own count of steps, as ops/adam_math.h has it."""

    def __init__(self, table, rate):
        self.table, self.rate = table, rate
        self.mean, self.square = torch.zeros_like(table), torch.zeros_like(table)
        self.count = torch.zeros(len(table), 1)

    def step(self, rows):
        grad = self.table.grad[rows]
        self.count[rows] += 1
        self.mean[rows] += 0.1 * (grad - self.mean[rows])
        self.square[rows] += 0.001 * (grad * grad - self.square[rows])
        count = self.count[rows]
        root = torch.sqrt(1 - 0.999 ** count)
        with torch.no_grad():
            self.table[rows] -= self.rate * root / (1 - 0.9 ** count) * self.mean[rows] / (
                self.square[rows].sqrt() + 1e-8 * root)
        self.table.grad = None
