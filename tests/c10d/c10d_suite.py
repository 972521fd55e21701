# SPDX-License-Identifier: BSD-3-Clause
"""Run PyTorch's own c10d test suite against a torch.distributed backend.

The tests are torch.testing._internal.distributed.distributed_test, which the
torch wheel ships.  They read the backend's name from the environment and hide
most tests from names they do not know, so this runner

  * imports the plugin that registers the backend, in the parent and in every
    rank (``--import``),
  * gives the name gloo's CPU capabilities in the suite's own tables
    (``--like``), so that what runs for gloo runs for it,
  * starts one process per rank for each test, with a time limit,
  * prints one line a test and a last line 'N passed, N failed, N skipped'.

Examples
  python c10d_suite.py --backend gloo --json gloo.json         # the reference
  python c10d_suite.py --import torchcomms --json ours.json --against gloo.json
  python c10d_suite.py --import torchcomms -k 'all_reduce|broadcast' -w 3
  python c10d_suite.py --route --json routed.json              # gloo, routed
      # through torchcomms by PyTorch (TORCH_DISTRIBUTED_USE_TORCHCOMMS=1)
  python c10d_suite.py --stand-in -k all_reduce    # checks the runner itself

Exit status: 0 when nothing failed, 1 when something did, 2 for a bad call.
"""

import argparse
import importlib
import json
import os
import re
import sys
import tempfile
import time
import types
import unittest

CONFIG = "C10D_SUITE_CONFIG"  # how a spawned rank learns the parent's options
SUITE = "torch.testing._internal.distributed.distributed_test"
BUILT_IN = ("gloo", "nccl", "mpi", "ucc", "xccl", "fake")

# What PyTorch 2.13 itself keeps from a plugin (--strict runs it anyway):
BY_NAME = {  # under a name of its own
    "monitored_barrier": "dist.monitored_barrier accepts only the name 'gloo'",
    "ddp_logging_data_cpu": "ProcessGroup calls every plugin 'custom'",
}
BY_ROUTE = {  # under the name 'gloo', with --route
    "ParallelCPU|no_sync|ddp_(create_graph|logging_data_cpu)|static_graph_api_cpu": (
        "DDP's logger casts what is called 'gloo' to ProcessGroupGloo: SIGSEGV"
    ),
    "object_subgroup": "new_group(backend='gloo') asks split_group for 'mps' too",
}


class Like(str):
    """A backend name that the suite's guards also take for another name."""

    other = "gloo"

    def __eq__(self, name):
        return str.__eq__(self, name) or str.__eq__(Like.other, name) is True

    def __ne__(self, name):
        return not self == name

    def __hash__(self):
        return hash(Like.other)


class GuardEnviron(type(os.environ)):
    """os.environ whose BACKEND is a Like; in place while the suite loads."""

    def __getitem__(self, key):
        value = super().__getitem__(key)
        return Like(value) if key == "BACKEND" else value


def refuse(why):
    print(why, file=sys.stderr)
    sys.exit(2)


def load_suite(options):
    """Import the plugins and the suite; return the test class to run."""
    os.environ.update(
        BACKEND=options["backend"],
        WORLD_SIZE=str(options["world_size"]),
        DISTRIBUTED_TESTS_DEFAULT_TIMEOUT=str(options["timeout"]),
    )
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if options["route"]:
        os.environ["TORCH_DISTRIBUTED_USE_TORCHCOMMS"] = "1"
    import torch.distributed as dist

    for name in options["imports"]:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            refuse(f"--import {name}: {error}")
    if options["route"]:
        dist.config.use_torchcomms = True
        if not dist.distributed_c10d._use_torchcomms_enabled():
            refuse("--route: torch could not import what it needs of torchcomms")
    if options["stand_in"]:
        dist.Backend.register_backend(
            options["backend"],
            lambda store, rank, size, timeout: dist.ProcessGroupGloo(
                store, rank, size, timeout=timeout
            ),
            devices=["cpu"],
        )
    if options["backend"] not in dist.Backend.backend_list:
        refuse(f"backend {options['backend']!r} is not registered; use --import")

    try:
        import expecttest  # noqa: F401
    except ImportError:  # torch.testing._internal wants it; these tests do not
        sys.modules["expecttest"] = types.ModuleType("expecttest")
        sys.modules["expecttest"].TestCase = unittest.TestCase
    from torch.testing._internal import common_distributed as common

    common.TIMEOUT_OVERRIDE.clear()
    if options["groups"] and options["world_size"] > 2:  # the suite wants 8
        common.skip_if_small_worldsize = lambda test: test
    alias = options["like"] if options["backend"] != options["like"] else None
    if alias:
        Like.other = alias
        tables = (
            common.DistTestCases.backend_feature,
            common.DistTestCases.skip_collective,
        )
        for names in [names for table in tables for names in table.values()]:
            if alias in names:
                names.add(options["backend"])
        common.DistTestCases.backend_feature["plugin"].add(options["backend"])
        plain = os.environ
        os.environ = GuardEnviron.__new__(GuardEnviron)  # noqa: B003
        os.environ.__dict__.update(plain.__dict__)
    try:
        suite = importlib.import_module(SUITE)
    finally:
        if alias:
            os.environ = plain  # noqa: B003
    for test in vars(suite.DistributedTest._DistTestBase).values():
        why = getattr(test, "__unittest_skip_why__", None)
        if options["unskip"] and why and re.search(options["unskip"], why):
            test.__unittest_skip__ = False
    if alias and not options["stand_in"]:  # a stand-in's events say 'gloo:...'
        for table in (
            suite.PROFILING_SUPPORTED_BACKENDS,
            suite.CUDA_PROFILING_SUPPORTED_BACKENDS,
            suite.SEND_RECV_PROFILING_SUPPORTED_BACKENDS,
        ):
            if alias in table:
                table.append(options["backend"])

    class C10dSuite(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._spawn_processes()

        def _spawn_processes(self):
            import torch.multiprocessing as mp

            self._start_processes(mp.get_context(options["start"]).Process)

        def tearDown(self):
            ranks = list(self.processes)
            super().tearDown()
            for rank in ranks:
                rank.join(2)
                if rank.is_alive():
                    rank.kill()
                    rank.join()
            if os.path.exists(self.file_name):
                os.unlink(self.file_name)

        @classmethod
        def _run(cls, rank, *args, **kwargs):
            suite.INIT_METHOD = os.environ["INIT_METHOD"]
            if options["route"]:  # new_comm is told neither rank nor size
                os.environ["TORCHCOMM_RANK"] = str(rank)
                os.environ["TORCHCOMM_SIZE"] = os.environ["WORLD_SIZE"]
            super()._run(rank, *args, **kwargs)

    C10dSuite.__module__, C10dSuite.__qualname__ = "__main__", "C10dSuite"
    return C10dSuite


class Outcome(unittest.TestResult):
    """One test's status and why."""

    status, reason = "passed", ""

    def addSkip(self, test, reason):
        self.status, self.reason = "skipped", reason

    def addFailure(self, test, err):
        self.status = "failed"
        self.reason = self._exc_info_to_string(err, test)

    addError = addFailure

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.addFailure(test, err)


def run_one(suite_class, name):
    """Run one test with the ranks' output kept aside; return its record."""
    outcome, started = Outcome(), time.monotonic()
    with tempfile.TemporaryFile("w+b") as log:
        sys.stdout.flush(), sys.stderr.flush()
        saved = os.dup(1), os.dup(2)
        os.dup2(log.fileno(), 1), os.dup2(log.fileno(), 2)
        try:
            suite_class(name).run(outcome)
        finally:
            sys.stdout.flush(), sys.stderr.flush()
            for fd, copy in enumerate(saved, 1):
                os.dup2(copy, fd), os.close(copy)
        log.seek(0)
        output = log.read().decode(errors="replace")
    record = {"status": outcome.status, "seconds": round(time.monotonic() - started, 2)}
    if outcome.reason:
        record["reason"] = outcome.reason[-4000:]
    if outcome.status == "failed":
        record["timeout"] = "terminated or timed out" in outcome.reason
        half = 6000
        record["output"] = (
            output
            if len(output) <= 2 * half
            else (output[:half] + "\n[...]\n" + output[-half:])
        )
    return record


def last_line(text):
    """The line of a reason that says most."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for at in reversed(range(len(lines))):
        if re.match(r"[\w.]*(Error|Exception)\b|Expected exit code", lines[at]):
            more = lines[at].endswith("equal!")  # 'Expected 1 but got 0.' follows
            return " ".join(lines[at : at + 1 + more])[:160]
    return (lines or [""])[-1][:160]


def parse(argv):
    ask = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = ask.add_argument
    add("--backend", help="default: torchcomms, or gloo with --route")
    add(
        "--import",
        dest="imports",
        action="append",
        default=[],
        metavar="MODULE",
        help="import this first, everywhere; default: the backend's own name",
    )
    add(
        "--like",
        default="gloo",
        choices=["gloo", "nothing"],
        help="whose capabilities the suite's guards give the backend",
    )
    add(
        "--route",
        action="store_true",
        help="torch.distributed.config.use_torchcomms = True",
    )
    add(
        "--stand-in",
        action="store_true",
        help="register the name as gloo itself, to check this runner",
    )
    add(
        "--strict",
        action="store_true",
        help="run also what PyTorch itself keeps from a plugin",
    )
    add("-w", "--world-size", type=int, default=4, help="ranks, default 4")
    add(
        "--no-groups",
        dest="groups",
        action="store_false",
        help="leave out the group tests the suite keeps for 8 ranks",
    )
    add(
        "--unskip",
        default="Only MPI supports",
        metavar="REGEXP",
        help="run also tests whose skip reason matches; default: CPU all_to_all",
    )
    add(
        "--start",
        default="fork",
        choices=["fork", "spawn"],
        help="fork (default): fast, wants an import that starts no thread",
    )
    add("-t", "--timeout", type=int, default=120, help="seconds a test")
    add("-k", "--select", default="", metavar="REGEXP", help="only these tests")
    add("--deselect", metavar="REGEXP", help="not these tests")
    add("--shard", default="1/1", metavar="I/N", help="the I-th of N parts")
    add("--retries", type=int, default=1, help="more tries for a failed test")
    add("--json", metavar="FILE", help="write every test's record here")
    add(
        "--against",
        metavar="FILE",
        help="earlier --json: name what passed there and does not here",
    )
    add("--list", action="store_true", help="print the tests' names and stop")
    options = ask.parse_args(argv)
    options.backend = options.backend or ("gloo" if options.route else "torchcomms")
    if not options.imports and not options.stand_in:
        options.imports = [options.backend] if options.backend not in BUILT_IN else []
    if not re.fullmatch(r"[1-9]\d*/[1-9]\d*", options.shard) or options.world_size < 1:
        ask.error("--shard takes I/N, and --world-size a positive number")
    return options


def main(argv=None):
    options = parse(argv)
    keep = (
        "backend",
        "imports",
        "like",
        "route",
        "stand_in",
        "world_size",
        "groups",
        "unskip",
        "start",
        "timeout",
    )
    config = {key: getattr(options, key) for key in keep}
    os.environ[CONFIG] = json.dumps(config)
    os.environ["INIT_METHOD"] = "file://"  # or test_barrier_timeout_global is hidden
    global C10dSuite
    C10dSuite = load_suite(config)
    wanted, unwanted = (
        re.compile(options.select),
        re.compile(options.deselect or r"(?!)"),
    )
    names = [
        name
        for name in unittest.TestLoader().getTestCaseNames(C10dSuite)
        if wanted.search(name) and not unwanted.search(name)
    ]
    part, parts = map(int, options.shard.split("/"))
    names = names[part - 1 :: parts]
    if options.list:
        print("\n".join(names))
        return 0

    import torch

    records, count = {}, dict(passed=0, failed=0, skipped=0)
    report = {"torch": torch.__version__, **config, "shard": options.shard}
    started = time.monotonic()
    kept = BY_ROUTE if options.route else BY_NAME
    if options.strict or (options.backend == "gloo" and not options.route):
        kept = {}
    for name in names:
        why = next((kept[key] for key in kept if re.search(key, name)), None)
        if why:
            record = {"status": "skipped", "seconds": 0.0, "reason": why}
        else:
            record = run_one(C10dSuite, name)
            for attempt in range(options.retries):
                if record["status"] != "failed" or record["timeout"]:
                    break
                first, record = record, run_one(C10dSuite, name)
                record["tries"], record["first"] = (
                    attempt + 2,
                    last_line(first["reason"]),
                )
        records[name] = record
        count[record["status"]] += 1
        reason = last_line(record.get("reason", ""))
        if "tries" in record:
            reason += f"  (try {record['tries']}; the first: {record['first']})"
        print(
            f"{record['status']:7} {record['seconds']:7.2f}s {name}  {reason}",
            flush=True,
        )
        report["seconds"] = round(time.monotonic() - started, 1)
        report["count"], report["tests"] = count, records
        if options.json:
            with open(options.json, "w") as file:
                json.dump(report, file, indent=1, sort_keys=True)

    if options.against:
        with open(options.against) as file:
            reference = json.load(file)["tests"]
        for name, record in records.items():
            before = reference.get(name, {}).get("status")
            if before == "passed" and record["status"] != "passed":
                print(f"LOST    {name}: {record['status']} here, passed there")
    seconds = time.monotonic() - started
    print(f"{options.backend}, {options.world_size} ranks, {seconds:.0f} s")
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**count))
    return 1 if count["failed"] else 0


if __name__ == "__mp_main__":  # a spawned rank: build the class it unpickles
    C10dSuite = load_suite(json.loads(os.environ[CONFIG]))
elif __name__ == "__main__":
    sys.exit(main())
