"""How fast the classifier of failures reads logs, what bait costs it, and whether healthy logs leave it silent.

    python -m tests.bench.classifier [--megabytes 100] [--lines 200000]

Lines per second are counted in CPU time of one process with all rules. The ratio is to the same rules searched for one
by one with the standard library's `re`, on a part of the lines. Bait is what makes patterns work: long lines of what
they begin with, binary rubbish, all of their literals; each is measured at 1, 2 and 4 MB, and linear means that four
times the length costs at most six times as much. A healthy log is generated from a seed: several programs' lines of
progress, warnings, retried and skipped errors, tracebacks that were logged and survived, metrics, progress bars and
checkpoints; the verdict is asked for after every 1,000 lines and at the end.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial

from libs.failures.classifier import Classifier
from libs.failures.package import package_files, package_rules
from libs.failures.verdict import Ended
from tests.bench.report import Report

LINES_PER_S = 50_000
BAIT_S = 0.2
LINEAR = 6.0
MEMORY_BYTES = 256_000
MB = 1 << 20
RE_LINES = 300
RANKS = 100_000


def healthy_lines(seed: int) -> Iterator[str]:
    """Lines of jobs that do well, without an end."""
    draw = random.Random(seed)
    step = 0
    while True:
        step += 1
        yield draw.choice(PROGRESS)(draw, step)
        if draw.random() < 0.04:
            yield draw.choice(HANDLED)(draw, step)
        if draw.random() < 0.004:
            yield from draw.choice(SURVIVED)(draw, step)
            for after in range(4):
                yield PROGRESS[0](draw, step + after)


def _loss(draw: random.Random) -> str:
    return f"{draw.uniform(0.5, 9):.4f}"


Made = Callable[[random.Random, int], str]
PROGRESS: tuple[Made, ...] = (
    lambda d, n: f"step {n}/500000 loss {_loss(d)} lr {d.uniform(1e-5, 1e-3):.2e} {d.uniform(80, 400):.1f} ms/step",
    lambda d, n: f"[rank{d.randrange(8)}]: iteration {n:8d}/ 500000 | lm loss: {_loss(d)} | loss scale: 65536.0 |",
    lambda d, n: (
        f"{{'loss': {_loss(d)}, 'grad_norm': {d.random():.3f}, 'learning_rate': 9.1e-06, 'epoch': {n / 900:.2f}}}"
    ),
    lambda d, n: (
        f"Epoch: [{n // 5005}][{n % 5005:4d}/5005]\tTime {d.random():.3f}\tLoss {_loss(d)}\tAcc@1 {d.random():.2f}"
    ),
    lambda d, n: (
        f"\r {n % 100}%|{'#' * (n % 10)}| {n}/9000 [{n % 60:02}:12<1:57:44,  1.09s/it]\r {n % 100}%|##| {n + 1}/9000"
    ),
    lambda d, n: f"\x1b[32m2026-03-0{1 + n % 9} 11:20:31\x1b[0m | INFO | trainer:fit:211 - batch {n} loss={_loss(d)}",
    lambda d, n: (
        f"I0311 10:22:00.482170 21044 solver.cpp:239] Iteration {n} (1.93 iter/s, 0.5s/100 iters), loss = {_loss(d)}"
    ),
    lambda d, n: (
        f"n{d.randrange(64)}:3320:3391 [{d.randrange(8)}] NCCL INFO Channel 0{n % 4}/0 : 3[3] -> 11[3] via P2P/IPC"
    ),
    lambda d, n: (
        f'{{"level":"INFO","ts":"2026-06-11T22:41:03Z","msg":"step={n} loss={_loss(d)} tokens/s={d.randrange(9000)}"}}'
    ),
    lambda d, n: (
        f"validation: top-1 error {d.random():.4f}, top-5 error {d.random():.4f}, failure cases {d.randrange(90)}"
    ),
    lambda d, n: f"saved checkpoint to /ckpt/run7/step_{n}.pt in {d.uniform(1, 30):.1f} s",
    lambda d, n: (
        f"GPU {d.randrange(8)}: {d.randrange(20000, 80000)}MiB / 81559MiB used, {d.randrange(40, 80)} C, 0 ECC errors"
    ),
    lambda d, n: f"eval: word error rate (WER) {d.uniform(3, 20):.2f}, exceptions in the lexicon: {d.randrange(40)}",
    lambda d, n: (
        f"dataloader: {d.randrange(2, 16)} workers, queue {d.randrange(64)}, wait {d.random():.4f} s, epoch {n // 500}"
    ),
)
HANDLED: tuple[Made, ...] = (
    lambda d, n: f"WARNING: shard {n}: HTTP Error 503: Service Unavailable, retrying in {d.randrange(1, 60)} s",
    lambda d, n: (
        f"/opt/lib/python3.11/site-packages/torch/cuda.py:{n % 900}: UserWarning: CUDA initialization: no driver"
    ),
    lambda d, n: f"Batch size {2 ** d.randrange(5, 12)} failed: CUDA out of memory. Tried to allocate 3.91 GiB",
    lambda d, n: f"warning: Permission denied: '/cache/{n}', using /tmp/cache instead",
    lambda d, n: f"skipping sample {n}: PIL.UnidentifiedImageError: cannot identify image file 'train/{n}.jpg'",
    lambda d, n: "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768",
    lambda d, n: (
        f"2026-05-02 11:20:31.1182{n % 90:02}: W tf/dso.cc:64] Could not load dynamic library 'libcudart.so.11.0'"
    ),
    lambda d, n: (
        f"WARNING:urllib3.connectionpool:Retrying (Retry(total={n % 5})) after connection broken by 'ReadTimeoutError'"
    ),
    lambda d, n: (
        f"botocore: An error occurred (SlowDown) when calling the GetObject operation, attempt {1 + n % 4} of 5"
    ),
    lambda d, n: (
        "[W312 09:32:53.648 TCPStore.cpp:340] [c10d] TCP client failed to connect to host n1:29500 - retrying (try=0)"
    ),
    lambda d, n: (
        f"ignoring broken record {n}: UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position {n % 70}"
    ),
    lambda d, n: "ModuleNotFoundError: No module named 'apex', falling back to torch.optim.AdamW",
    lambda d, n: f"node {n % 64}: Connection reset by peer, retry {1 + n % 3}/5",
    lambda d, n: (
        f"DeprecationWarning: invalid escape sequence in config.py:{n % 300}; a SyntaxError in a later version"
    ),
    lambda d, n: "nan loss scale check: found inf in gradients, skipping this update, loss scale now 16384",
    lambda d, n: (
        "Token indices sequence length is longer than the specified maximum sequence length for this model (612 > 512)."
    ),
    lambda d, n: f"INFO: could not open the cache file /cache/{n}.idx: No such file or directory; building it",
)
SURVIVED: tuple[Callable[[random.Random, int], list[str]], ...] = (
    lambda d, n: [
        "ERROR:data:cannot read shard, will retry",
        "Traceback (most recent call last):",
        '  File "/w/data.py", line 31, in fetch',
        "    return store.get(key)",
        "botocore.exceptions.EndpointConnectionError: Could not connect to the endpoint URL, retrying",
    ],
    lambda d, n: [
        "ERROR:metrics:the dashboard does not answer (ignored)",
        "Traceback (most recent call last):",
        '  File "/w/metrics.py", line 12, in push',
        "    session.post(url)",
        f"requests.exceptions.ConnectionError: Max retries exceeded with url: /push/{n}",
    ],
    lambda d, n: [
        "Exception ignored in: <function Pool.__del__ at 0x7f1>",
        "Traceback (most recent call last):",
        '  File "/opt/lib/python3.11/multiprocessing/pool.py", line 268, in __del__',
        "    self._change_notifier.put(None)",
        "OSError: [Errno 9] Bad file descriptor",
    ],
)
"""Tracebacks that were logged; the program goes on after each."""


def _timed(feed: Callable[[], None]) -> float:
    began = time.process_time()
    feed()
    return time.process_time() - began


def _feed(classifier: Classifier, lines: list[bytes]) -> None:
    for line in lines:
        classifier.feed_line(line)


def _search(patterns: list[re.Pattern[str]], lines: list[str]) -> None:
    for line in lines:
        for pattern in patterns:
            pattern.search(line)


def measure_rate(report: Report, count: int) -> None:
    """Lines per second, and beside the standard library."""
    made = healthy_lines(1)
    lines = [next(made).encode() for _ in range(count)]
    classifier = Classifier(package_rules())
    _feed(classifier, lines[:2000])  # the automata are built as they are used
    took_s = _timed(lambda: _feed(classifier, lines))
    patterns = [re.compile(rule.pattern) for rule in package_files().rules]
    sample = [line.decode() for line in lines[:RE_LINES]]
    by_re_s = _timed(lambda: _search(patterns, sample))
    rate, by_re = count / took_s, RE_LINES / by_re_s
    report.row(
        f"{count} lines of healthy logs, {len(patterns)} rules",
        lines_per_s=round(rate),
        limit=LINES_PER_S,
        with_re_lines_per_s=round(by_re),
        ratio=round(rate / by_re, 1),
        within_limit=rate >= LINES_PER_S,
    )


def baits() -> dict[str, Callable[[int], bytes]]:
    """{what: a line of about so many bytes}."""
    rubbish = random.Random(2).randbytes(4 * MB).replace(b"\n", b"\0").replace(b"\r", b"\0")
    rules = package_files().rules
    begins = b" ".join(re.sub(r"[^A-Za-z ]+", " ", rule.pattern).encode() for rule in rules)
    examples = b" ".join(rule.example.replace("\n", " ").encode() for rule in rules)
    return {
        "one letter": lambda size: b"a" * size,
        "binary rubbish": lambda size: rubbish[:size],
        "CUDA CUDA CUDA": lambda size: (b"CUDA initializ " * (size // 15 + 1))[:size],
        "spaces and Error": lambda size: (b"    Error: " * (size // 11 + 1))[:size],
        "literals of all rules": lambda size: (begins * (size // len(begins) + 1))[:size],
        "examples of all rules": lambda size: (examples * (size // len(examples) + 1))[:size],
        "carriage returns": lambda size: (b" 12%|## | 12/90\r" * (size // 16 + 1))[:size],
        "colours": lambda size: (b"\x1b[32mstep\x1b[0m" * (size // 13 + 1))[:size],
        "escape bytes": lambda size: (b"\x1b]" * (size // 2 + 1))[:size],
    }


def measure_baits(report: Report) -> None:
    """Seconds for lines of 1, 2 and 4 MB, and whether they grow with the length."""
    for what, line in baits().items():
        took = {}
        for size in (1, 2, 4):
            data = line(size * MB)
            took[size] = min(_timed(partial(Classifier(package_rules()).feed, data)) for _ in range(3))
        report.row(
            f"a line of 1, 2, 4 MB: {what}",
            s_1mb=round(took[1], 4),
            s_2mb=round(took[2], 4),
            s_4mb=round(took[4], 4),
            limit=BAIT_S,
            within_limit=took[1] < BAIT_S and took[4] < LINEAR * max(took[1], 0.01),
        )


def measure_silence(report: Report, megabytes: int) -> None:
    """Verdicts on healthy logs; there has to be none."""
    classifier, made = Classifier(package_rules()), healthy_lines(3)
    size = count = 0
    said: dict[str, str] = {}
    while size < megabytes * MB:
        block = "\n".join(next(made) for _ in range(1000)) + "\n" + PROGRESS[0](random.Random(count), count)
        classifier.feed(block)
        size, count = size + len(block), count + 1001
        if (found := classifier.verdict()) is not None:
            said.setdefault(found.rule, found.deciding_line)
    ended = classifier.verdict(Ended(exit_code=0))
    report.row(
        f"{megabytes} MB of healthy logs, {count} lines",
        verdicts=len(said) + (ended is not None),
        limit=0,
        within_limit=not said and ended is None,
    )
    for rule, line in said.items():
        print(f"  {rule}: {line}", flush=True)


def measure_memory(report: Report) -> None:
    """Bytes that one job needs while 100,000 ranks print by turns and most rules match."""
    Classifier(package_rules()).feed("warm up\n")
    examples = [rule.example for rule in package_files().rules]
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    classifier = Classifier(package_rules())
    for rank in range(RANKS):
        text = f"{examples[rank % len(examples)]} {'x' * 8000}" if rank % 50 == 0 else f"step {rank} loss 2.1"
        classifier.feed(text, rank=rank)
    size = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    report.row(f"memory of a job of {RANKS} ranks", bytes=size, limit=MEMORY_BYTES, within_limit=size < MEMORY_BYTES)


def main() -> None:
    """Measure, write the results, and fail when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--lines", type=int, default=200_000)
    asked = parser.parse_args()
    report = Report("classifier", "The classifier of failures: speed, bait, silence, memory")
    measure_rate(report, asked.lines)
    measure_baits(report)
    measure_silence(report, asked.megabytes)
    measure_memory(report)
    report.write()
    sys.exit(0 if report.all_within_limits() else 1)


if __name__ == "__main__":
    main()
