# SPDX-License-Identifier: BSD-3-Clause
"""The examples run as the README says, and the check of the training can fail."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from torch.distributed import TCPStore

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
TIMEOUT_S = 120
LAUNCHERS = {
    "plain variables": ("RANK", "WORLD_SIZE"),
    "MPICH and Intel MPI": ("PMI_RANK", "PMI_SIZE"),
    "Open MPI": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
}
SWITCH = "TORCH_DISTRIBUTED_USE_TORCHCOMMS"
# What torch says when it takes that way.
SWITCHED = f"Using TorchComms backend (enabled via {SWITCH} env var)"


def environment(**more):
    return {**os.environ, "OMP_NUM_THREADS": "1", **more}


def torchrun(ranks, *command, **variables):
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    return subprocess.run(
        [sys.executable, *launcher, str(ranks), *map(str, command)],
        env=environment(**variables),
        timeout=TIMEOUT_S,
        capture_output=True,
        text=True,
    )


def lines_of_all_reduce(ranks):
    total = float(sum(range(1, ranks + 1)))
    return [f"rank {rank} of {ranks} got {[total] * 4}" for rank in range(ranks)]


def test_all_reduce_under_torchrun():
    done = torchrun(2, EXAMPLES / "all_reduce.py")
    assert done.returncode == 0, done.stderr
    # Ranks write to one pipe, and unbuffered a line's end comes apart from the line.
    assert [done.stdout.count(line) for line in lines_of_all_reduce(2)] == [1, 1]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_all_reduce_by_the_variables_of(launcher):
    rank_variable, size_variable = LAUNCHERS[launcher]
    ranks = 3
    # Held by the test, so that no other process can take the port.
    store = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    processes = []
    for rank in range(ranks):
        placed = {
            rank_variable: str(rank),
            size_variable: str(ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(store.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
        }
        processes.append(
            subprocess.Popen(
                [sys.executable, EXAMPLES / "all_reduce.py"],
                env=environment(**placed),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    try:
        shown = [process.communicate(timeout=TIMEOUT_S) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [process.returncode for process in processes] == [0] * ranks, shown
    assert [output.strip() for output, _ in shown] == lines_of_all_reduce(ranks)


# Not called `ranks`: that is a fixture here.
@pytest.mark.parametrize("count", [2, 3])
def test_training_learns_and_agrees_with_one_process(count):
    done = torchrun(count, EXAMPLES / "train_digits.py", "--check")
    assert done.returncode == 0, done.stdout + done.stderr
    steps, accuracy, verdict = done.stdout.splitlines()
    assert steps.startswith(f"{count} ranks: 225 steps")
    assert float(accuracy.split()[2]) > 95
    assert "agree" in verdict
    assert "100%" in done.stderr, "progress bar"


def test_training_check_fails_when_gradients_are_not_summed(tmp_path):
    text = (EXAMPLES / "train_digits.py").read_text()
    whole = "self.sum(parameter.grad)"
    assert text.count(whole) == 1
    spoilt = tmp_path / "train_digits.py"
    spoilt.write_text(text.replace(whole, "self.sum(parameter.grad.clone())"))
    done = torchrun(2, spoilt, "--check", "--epochs", "1")
    assert done.returncode != 0
    assert "DIFFER" in done.stdout


def check_training(done, titles):
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 2 * len(titles) + 1
    steps, accuracy, verdicts = (
        lines[: len(titles)],
        lines[len(titles)],
        lines[-len(titles) :],
    )
    for title, step, verdict in zip(titles, steps, verdicts, strict=True):
        assert step.startswith(f"{title}: 161 steps, median ")
        assert verdict.startswith(f"losses of {title} and of 1 process agree")
    assert float(accuracy.split()[2]) > 95
    assert "100%" in done.stderr, "progress bar"


def test_fsdp2_learns_and_agrees_with_one_process_and_gloo():
    done = torchrun(2, EXAMPLES / "fsdp2_digits.py", "--check", "--against", "gloo")
    check_training(done, ["2 ranks over torchcomms", "2 ranks over gloo"])


def test_ddp_learns_and_agrees_with_one_process():
    done = torchrun(3, EXAMPLES / "ddp_digits.py", "--check")
    check_training(done, ["3 ranks over torchcomms"])


@pytest.mark.parametrize("example", ["fsdp2_digits.py", "ddp_digits.py"])
def test_training_by_the_switch(example):
    command = [EXAMPLES / example, "--check", "--epochs", "1", "--backend", "ncclx"]
    done = torchrun(2, *command, **{SWITCH: "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "losses of 2 ranks over ncclx and of 1 process agree" in done.stdout
    assert SWITCHED in done.stderr


# Gradients that stay on their rank, and gradients that are half of the right ones.
SPOILT = {
    "ddp_digits.py": ("DistributedDataParallel(model, process_group=group)", "model"),
    "digits.py": ("(loss * self.size).backward()", "loss.backward()"),
}


@pytest.mark.parametrize(
    ("example", "spoilt"),
    [("ddp_digits.py", "ddp_digits.py"), ("fsdp2_digits.py", "digits.py")],
)
def test_check_fails_when_gradients_are_wrong(tmp_path, example, spoilt):
    for name in (example, "digits.py"):
        shutil.copy(EXAMPLES / name, tmp_path)
    text = (tmp_path / spoilt).read_text()
    whole, part = SPOILT[spoilt]
    assert text.count(whole) == 1
    (tmp_path / spoilt).write_text(text.replace(whole, part))
    done = torchrun(2, tmp_path / example, "--check", "--epochs", "1")
    assert done.returncode != 0
    assert "losses of 2 ranks over torchcomms and of 1 process DIFFER" in done.stdout


def test_readme_shows_the_first_example():
    text = (EXAMPLES / "all_reduce.py").read_text()
    shown = f"<!-- examples/all_reduce.py -->\n```python\n{text}```\n"
    assert shown in (ROOT / "README.md").read_text()


def test_readme_links_lead_to_files():
    text = (ROOT / "README.md").read_text()
    links = [part.split(")", 1)[0] for part in text.split("](")[1:]]
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


@pytest.mark.parametrize("switch", ["0", "1"])
def test_readme_example_of_torch_distributed(tmp_path, switch):
    """It runs through both doors, as the README says."""
    start = "<!-- run by test_examples.py -->\n```python\n"
    text = (ROOT / "README.md").read_text()
    assert text.count(start) == 1
    script = tmp_path / "script.py"
    script.write_text(text.partition(start)[2].partition("```")[0])
    done = torchrun(2, script, **{SWITCH: switch})
    assert done.returncode == 0, done.stderr
    assert [done.stdout.count(f"rank {rank} got 3.0") for rank in range(2)] == [1, 1]
    assert (SWITCHED in done.stderr) == (switch == "1")
