# SPDX-License-Identifier: BSD-3-Clause
"""A classifier of handwritten digits, data parallel by hand.

Each rank takes its share of every batch. As soon as the gradient of a parameter is
there, an asynchronous all_reduce adds up the ranks' gradients while the backward pass
goes on. With --check rank 0 trains once more, alone, and compares the losses.

torchrun --nproc-per-node 2 examples/train_digits.py --check
"""

import argparse
import sys
import time

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.nn.functional import cross_entropy
from tqdm import trange

import torchcomms
from torchcomms import ReduceOp

SEED = 1
TOLERANCE = 1e-5


def load():
    """Images and labels of the training and of the test set, the same on all ranks."""
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(
        images, labels, test_size=0.2, random_state=SEED, stratify=labels
    )
    train_x, test_x, train_y, test_y = map(torch.from_numpy, parts)
    return (train_x.float() / 16, train_y), (test_x.float() / 16, test_y)


def make_model():
    torch.manual_seed(SEED)
    # tanh: where a ReLU bends, one rounding more would change the losses by 1e-3.
    return torch.nn.Sequential(
        torch.nn.Unflatten(1, (1, 8, 8)),
        torch.nn.Conv2d(1, 16, 3, padding=1),
        torch.nn.Tanh(),
        torch.nn.Conv2d(16, 32, 3, stride=2, padding=1),
        torch.nn.Tanh(),
        torch.nn.Flatten(),
        torch.nn.Linear(512, 64),
        torch.nn.Tanh(),
        torch.nn.Linear(64, 10),
    )


class Team:
    """The ranks that train together."""

    def __init__(self, comm):
        self.comm = comm
        self.rank, self.size = comm.get_rank(), comm.get_size()
        self.works = []

    def share(self, batch):
        return batch[self.rank :: self.size]

    def join(self, model):
        """Same parameters on all ranks, and gradients that are sums over them."""
        for parameter in model.parameters():
            self.comm.broadcast(parameter.detach(), root=0, async_op=False)
            parameter.register_post_accumulate_grad_hook(self._start_sum)

    def _start_sum(self, parameter):
        self.sum(parameter.grad)

    def sum(self, tensor):
        """Starts to add up the ranks' tensors; settle() waits for it."""
        self.works.append(self.comm.all_reduce(tensor, ReduceOp.SUM, async_op=True))

    def settle(self):
        for work in self.works:
            work.wait()
        self.works.clear()


class Alone:
    """A team of one, which has nothing to send."""

    rank, size = 0, 1

    def share(self, batch):
        return batch

    def join(self, model):
        pass

    def sum(self, tensor):
        pass

    def settle(self):
        pass


def train(team, data, options, title):
    """The trained model and the loss of each step over the whole batch."""
    images, labels = data
    model = make_model()
    team.join(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    order = torch.Generator().manual_seed(SEED)
    losses = []
    epochs = trange(options.epochs, desc=title, unit="epoch", disable=team.rank != 0)
    for _ in epochs:
        shuffled = torch.randperm(len(images), generator=order)
        for batch in shuffled.split(options.batch):
            part = team.share(batch)
            output = model(images[part])
            # Divided by the whole batch: the sum over the ranks is then its mean.
            loss = cross_entropy(output, labels[part], reduction="sum") / len(batch)
            optimizer.zero_grad()
            loss.backward()
            whole_loss = loss.detach().clone()
            team.sum(whole_loss)
            team.settle()
            optimizer.step()
            losses.append(whole_loss)
        epochs.set_postfix_str(f"loss {losses[-1].item():.4f}", refresh=False)
    return model, torch.stack(losses)


def accuracy(team, model, data):
    """The share of right answers; each rank asks for its part of the images."""
    images, labels = map(team.share, data)
    with torch.no_grad():
        right = (model(images).argmax(1) == labels).sum()
    team.sum(right)
    team.settle()
    return right.item() / len(data[1])


def main():
    ask = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    ask.add_argument("--epochs", type=int, default=15)
    ask.add_argument("--batch", type=int, default=100, help="images of all ranks")
    ask.add_argument("--check", action="store_true", help="compare with one process")
    options = ask.parse_args()

    # The ranks share the cores: more threads each would only take turns.
    torch.set_num_threads(1)
    train_set, test_set = load()
    comm = torchcomms.new_comm("ncclx", torch.device("cpu"), name="digits")
    team = Team(comm)
    start = time.perf_counter()
    model, losses = train(team, train_set, options, f"{team.size} ranks")
    seconds = time.perf_counter() - start
    right = accuracy(team, model, test_set)
    comm.finalize()
    if team.rank != 0:
        return 0

    print(f"{team.size} ranks: {len(losses)} steps in {seconds:.1f} s", flush=True)
    print(f"test accuracy {100 * right:.1f} % of {len(test_set[1])} images", flush=True)
    if options.check:
        _, expected = train(Alone(), train_set, options, "1 process")
        difference = (losses - expected).abs().max().item()
        verdict = "agree" if difference <= TOLERANCE else "DIFFER"
        print(
            f"losses of {team.size} ranks and of one process {verdict}: "
            f"largest difference {difference:.1e}, allowed {TOLERANCE:.0e}",
            flush=True,
        )
        return 0 if difference <= TOLERANCE else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
