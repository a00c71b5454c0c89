"""Honest pairs: whole segments computed under one condition and audited under another, through the real replay.

A condition is what a machine may choose or have otherwise than another one within a class: threads, attention kernel,
recomputing, how many rows go through the stage at once, instruction set. The last is read when torch is imported, so
each set of environment variables has a process of its own (`subnet.edges.condition_worker`); jobs go to it and answers
come back as lines of JSON, segments lie between them in files of MessagePack. Does not import torch.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
import numpy as np

from subnet.audit.tolerance import Class
from subnet.config import RunConfig
from subnet.data.pack import Corpus
from subnet.edges.data import measure_corpus
from subnet.errors import ConfigError, SubnetError

CORPUS_TOKENS = 1 << 20
MOVEMENT = "movement"  # how far parameters' movements are apart as they are; no comparison has this name
WORKER = "subnet.edges.condition_worker"
IDLE_THREADS = {"OMP_WAIT_POLICY": "passive", "KMP_BLOCKTIME": "0"}  # threads that wait leave the cores to others


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """How a segment is computed. Empty words and ones are the run's own way on this machine."""

    environment: tuple[tuple[str, str], ...] = ()  # variables that torch and its libraries read when they are loaded
    threads: int = 1
    other_attention: bool = False  # eager in an SDPA run, SDPA in an eager one
    recompute: bool = False
    row_parts: int = 1  # in how many parts the rows of a microbatch go through the stage

    @property
    def name(self) -> str:
        """In words."""
        words = [f"{name}={value}" for name, value in self.environment]
        words += [f"{self.threads} threads"] if self.threads > 1 else []
        words += ["other attention kernel"] if self.other_attention else []
        words += ["recompute"] if self.recompute else []
        words += [f"rows in {self.row_parts} parts"] if self.row_parts > 1 else []
        return ", ".join(words) or "as it comes"


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A run to rehearse: its first rounds unseen, the segments of the next ones audited."""

    run: RunConfig
    skip_rounds: int
    rounds: int


class HonestSegment(msgspec.Struct, frozen=True, kw_only=True):
    """One honest segment, audited: by kind of comparison the largest distance, and that of `MOVEMENT`."""

    run_class: Class
    miner: str
    auditor: str
    stage: int
    round: int
    distances: dict[str, float]


class Perform(msgspec.Struct, frozen=True, kw_only=True, tag="perform"):
    """A worker's job: rehearse the setting under the condition and put its segments into the folder."""

    setting: Setting
    condition: Condition
    folder: str


class Audit(msgspec.Struct, frozen=True, kw_only=True, tag="audit"):
    """A worker's job: audit the segments in the folder under the condition."""

    setting: Setting
    condition: Condition
    folder: str


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker answers to each job: of each segment stage, round and distances; or why it could not."""

    segments: tuple[tuple[int, int, dict[str, float]], ...] = ()
    error: str = ""


class CorpusFile(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker reads first: where the tokens lie that stand for every run's corpus."""

    path: str
    dtype: str
    vocabulary: int


class Workers:
    """One process for each environment, started when it is first needed."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        self._stack = contextlib.ExitStack()
        self._found: dict[tuple[tuple[str, str], ...], subprocess.Popen[bytes]] = {}

    def __enter__(self) -> "Workers":
        self.folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="strata-honest-")))
        tokens = self._corpus.tokens[:CORPUS_TOKENS]
        tokens.tofile(self.folder / "corpus.bin")
        self._file = CorpusFile(
            path=str(self.folder / "corpus.bin"),
            dtype=tokens.dtype.str,
            vocabulary=self._corpus.vocabulary,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._found.values():
            process.kill()
            process.communicate()
        self._stack.close()

    def ask(self, job: Perform | Audit) -> Answer:
        """Have the job done under its condition. Raises SubnetError when the worker does not answer, or cannot."""
        process = self._process(job.condition.environment)
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(msgspec.json.encode(job) + b"\n")
            process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise SubnetError(
                f"expected an answer under {job.condition.name!r}, found the process ended with {process.wait()}: "
                f"{self._last_words(job.condition.environment)}; leave this condition out"
            )
        answer = msgspec.json.decode(line, type=Answer)
        if answer.error:
            raise SubnetError(f"expected honest segments under {job.condition.name!r}, found {answer.error}")
        return answer

    def _process(self, environment: tuple[tuple[str, str], ...]) -> "subprocess.Popen[bytes]":
        if environment not in self._found:
            with self._log(environment).open("wb") as log:
                process = subprocess.Popen(
                    [sys.executable, "-m", WORKER],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=os.environ | IDLE_THREADS | dict(environment),
                )
            self._found[environment] = process
            assert process.stdin is not None
            process.stdin.write(msgspec.json.encode(self._file) + b"\n")
        return self._found[environment]

    def _log(self, environment: tuple[tuple[str, str], ...]) -> Path:
        return self.folder / ("-".join(value for _, value in environment) + ".log")

    def _last_words(self, environment: tuple[tuple[str, str], ...]) -> str:
        lines = self._log(environment).read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"


def conditions() -> tuple[Condition, ...]:
    """Every condition that this machine can compute under: each instruction set, each in every way."""
    ways: tuple[dict[str, Any], ...] = (
        {},
        {"threads": 2},
        {"other_attention": True},
        {"recompute": True},
        {"row_parts": 2},
        {"threads": 3, "other_attention": True, "row_parts": 3},
    )
    return tuple(Condition(environment=environment, **way) for environment in environments() for way in ways)


def environments() -> tuple[tuple[tuple[str, str], ...], ...]:
    """The instruction sets that this processor has, as variables for torch, oneDNN and MKL."""
    has = _processor_flags()
    oldest = (("ATEN_CPU_CAPABILITY", "default"), ("MKL_CBWR", "COMPATIBLE"), ("ONEDNN_MAX_CPU_ISA", "SSE41"))
    avx2 = (("ATEN_CPU_CAPABILITY", "avx2"), ("MKL_ENABLE_INSTRUCTIONS", "AVX2"), ("ONEDNN_MAX_CPU_ISA", "AVX2"))
    found: list[tuple[tuple[str, str], ...]] = [(), oldest[:1], oldest[1:2], oldest]
    return (*found, avx2) if "avx512f" in has else tuple(found)


def _processor_flags() -> set[str]:
    """What Linux says that the processor can; nothing elsewhere."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("flags"):
                return set(line.split(":", 1)[1].split())
    return set()


def fits(condition: Condition, run: RunConfig) -> bool:
    """Whether the condition stays within the run's class.

    A run pins its attention kernel. In float32 another one stands in for another machine's; in bfloat16 it is other
    arithmetic: eager attention rounds the probabilities, SDPA does not.
    """
    return run.train.dtype == "float32" or not condition.other_attention


def honest_segments(
    settings: Sequence[Setting],
    among: Sequence[Condition],
    *,
    seed: int,
    auditors: int = 4,
    corpus: Corpus | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Iterator[HonestSegment]:
    """Every segment of every setting, as miners under one drawn condition and several drawn auditors see it.

    A pair never shares its condition. progress: told how many of how many settings are done. Raises SubnetError when a
    worker cannot.
    """
    if len(among) < 2:
        raise ConfigError(f"expected at least 2 conditions to compare, found {len(among)}; give more")
    chance = np.random.default_rng(seed)
    with Workers(measure_corpus("stdlib", "", "", "bytes") if corpus is None else corpus) as workers:
        for number, setting in enumerate(settings):
            fitting = [condition for condition in among if fits(condition, setting.run)]
            drawn = [fitting[place] for place in chance.permutation(len(fitting))[: auditors + 1]]
            yield from _setting_segments(workers, setting, drawn[0], drawn[1:])
            progress(number + 1, len(settings))


def _setting_segments(
    workers: Workers, setting: Setting, miner: Condition, auditors: Sequence[Condition]
) -> Iterator[HonestSegment]:
    train = setting.run.train
    with tempfile.TemporaryDirectory(dir=workers.folder) as folder:
        workers.ask(Perform(setting=setting, condition=miner, folder=folder))
        for auditor in auditors:
            answer = workers.ask(Audit(setting=setting, condition=auditor, folder=folder))
            for stage, number, distances in answer.segments:
                yield HonestSegment(
                    run_class=(train.dtype, train.optimizer, setting.run.lanes.codec),
                    miner=miner.name,
                    auditor=auditor.name,
                    stage=stage,
                    round=number,
                    distances=distances,
                )
