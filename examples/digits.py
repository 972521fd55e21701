# SPDX-License-Identifier: BSD-3-Clause
"""What fsdp2_digits.py and ddp_digits.py share: data, model, training, comparisons."""

import argparse
import statistics
import time

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.nn import LayerNorm, Linear, TransformerEncoderLayer
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_
from tqdm import trange

SEED = 1
TOLERANCE = 1e-4


def load():
    """Images and labels of the training and of the test set, the same on all ranks."""
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(
        images, labels, test_size=0.2, random_state=SEED, stratify=labels
    )
    train_x, test_x, train_y, test_y = map(torch.from_numpy, parts)
    return (train_x.float() / 16, train_y), (test_x.float() / 16, test_y)


class Classifier(torch.nn.Module):
    """A small transformer that reads an image row by row."""

    def __init__(self, width=32, heads=4, depth=2):
        super().__init__()
        self.embed = Linear(8, width)
        self.place = torch.nn.Parameter(torch.randn(8, width) / width**0.5)
        self.blocks = torch.nn.ModuleList(
            TransformerEncoderLayer(
                width,
                heads,
                2 * width,
                dropout=0.0,
                activation="gelu",
                batch_first=True,
            )
            for _ in range(depth)
        )
        self.norm = LayerNorm(width)
        self.head = Linear(width, 10)

    def forward(self, images):
        rows = self.embed(images.unflatten(1, (8, 8))) + self.place
        for block in self.blocks:
            rows = block(rows)
        return self.head(self.norm(rows.mean(1)))


def make_model():
    """The same start on all ranks."""
    torch.manual_seed(SEED)
    return Classifier()


class Trainer:
    """A model that the ranks of a group train together; without a group, alone."""

    def __init__(self, title, model, group=None):
        self.title = title
        self.model = model
        self.group = group
        self.rank, self.size = (group.rank(), group.size()) if group else (0, 1)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, fused=True)
        self.losses, self.seconds = [], []

    def share(self, batch):
        return batch[self.rank :: self.size]

    def sum(self, tensor):
        if self.group is not None:
            dist.all_reduce(tensor, group=self.group)
        return tensor

    def step(self, images, labels):
        start = time.perf_counter()
        output = self.model(self.share(images))
        loss = cross_entropy(output, self.share(labels), reduction="sum") / len(images)
        self.optimizer.zero_grad()
        # DDP and FSDP2 average the gradients of the ranks, and the shares of a batch
        # may differ in size: this way the average is the gradient of the whole batch.
        (loss * self.size).backward()
        clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.seconds.append(time.perf_counter() - start)
        self.losses.append(self.sum(loss.detach()).item())

    def accuracy(self, data):
        """The share of right answers; each rank asks for its part of the images."""
        images, labels = map(self.share, data)
        with torch.no_grad():
            right = (self.model(images).argmax(1) == labels).sum()
        return self.sum(right).item() / len(data[1])

    def step_time(self):
        median = statistics.median(self.seconds)
        return f"{len(self.seconds)} steps, median {1e3 * median:.1f} ms"


def train(trainers, data, options):
    images, labels = data
    order = torch.Generator().manual_seed(SEED)
    first = trainers[0]
    epochs = trange(
        options.epochs, desc=first.title, unit="epoch", disable=first.rank != 0
    )
    for _ in epochs:
        batches = torch.randperm(len(images), generator=order).split(options.batch)
        # In turn, so that all trainers meet the machine in the same state.
        for trainer in trainers:
            for batch in batches:
                trainer.step(images[batch], labels[batch])
        epochs.set_postfix_str(f"loss {first.losses[-1]:.4f}", refresh=False)


def agree(trainer, expected):
    """Whether the losses of all steps are those of `expected`; says how far apart."""
    pairs = zip(trainer.losses, expected.losses, strict=True)
    difference = max(abs(ours - theirs) for ours, theirs in pairs)
    same = difference <= TOLERANCE
    print(
        f"losses of {trainer.title} and of {expected.title} "
        f"{'agree' if same else 'DIFFER'}: "
        f"largest difference {difference:.1e}, allowed {TOLERANCE:.0e}",
        flush=True,
    )
    return same


def run(options, parallelize):
    """Trains over the process group, reports on rank 0; the status to exit with.

    parallelize(model, backend) gives the model to train and the group of its ranks:
    the default group, or one of the named backend.
    """
    # The ranks share the cores: more threads each would only take turns.
    torch.set_num_threads(1)
    train_set, test_set = load()
    ranks = f"{dist.get_world_size()} ranks over"
    ours = parallelize(make_model(), None)
    trainers = [Trainer(f"{ranks} {options.backend}", *ours)]
    if options.against:
        theirs = parallelize(make_model(), options.against)
        trainers.append(Trainer(f"{ranks} {options.against}", *theirs))
    train(trainers, train_set, options)
    right = trainers[0].accuracy(test_set)
    if trainers[0].rank != 0:
        return 0

    for trainer in trainers:
        print(f"{trainer.title}: {trainer.step_time()}", flush=True)
    print(f"test accuracy {100 * right:.1f} % of {len(test_set[1])} images", flush=True)
    if not options.check:
        return 0
    alone = Trainer("1 process", make_model())
    train([alone], train_set, options)
    verdicts = [agree(trainer, alone) for trainer in trainers]
    return 0 if all(verdicts) else 1


def arguments(description):
    ask = argparse.ArgumentParser(description=description)
    ask.add_argument("--backend", default="torchcomms", help="of init_process_group")
    ask.add_argument("--against", metavar="BACKEND", help="train over this one too")
    ask.add_argument("--check", action="store_true", help="compare with one process")
    ask.add_argument("--epochs", type=int, default=7)
    ask.add_argument("--batch", type=int, default=64, help="images of all ranks")
    return ask.parse_args()
