"""Corpora from outside: the standard library's source, a folder of text files, or a `datasets` data set.

Each gives documents (a name and a text) in a pinned order; they are packed into one row of tokens with a separator
after each. The digest covers names, texts and tokens, so two machines notice any difference before they train. The text
libraries are imported only where they are used. Knows nothing of sequences and microbatches.
"""

import os
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import blake3
import numpy as np

from subnet.config import DataConfig
from subnet.data.pack import Corpus, check_corpus
from subnet.errors import CorpusError

BYTE_VOCABULARY = 256
BYTE_SEPARATOR = 0
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "tokenizer_config.json")
STDLIB_LIMIT_BYTES = 8 << 20  # no file is started after this many: it keeps every process's start under a second
# Left out: tests; tables of characters; what some distributions install separately; what is made when Python is built.
STDLIB_SKIPPED_FOLDERS = frozenset(
    {"__pycache__", "dist-packages", "encodings", "ensurepip", "idle_test", "idlelib", "lib2to3", "pydoc_data"}
    | {"site-packages", "test", "tests", "tkinter", "turtledemo", "venv", "distutils", "lib-dynload"}
)
STDLIB_SKIPPED_FILES = frozenset({"site.py", "sitecustomize.py", "sysconfig.py", "usercustomize.py"})

Document = tuple[str, bytes]
Encode = Callable[[str], list[int]]


def measure_corpus(source: str, location: str, revision: str, tokenizer: str) -> Corpus:
    """Read and pack a corpus, whatever its digest. Raises CorpusError with one sentence when that is not possible."""
    documents = {"stdlib": _stdlib, "text": _text_folder, "datasets": _data_set}
    if source not in documents:
        raise CorpusError(f"expected the data source {', '.join(documents)}, found {source!r}; choose one of these")
    found = list(documents[source](location, revision))
    if not any(text for _, text in found):
        raise CorpusError(f"expected text in {location or source}, found none; choose a source that has some")
    return _pack(found, tokenizer)


def load_corpus(data: DataConfig) -> Corpus:
    """The run's corpus. Raises CorpusError when this machine's differs, or cannot be read."""
    corpus = measure_corpus(data.source, data.location, data.revision, data.tokenizer)
    check_corpus(data, corpus)
    return corpus


def _stdlib(location: str, revision: str) -> Iterator[Document]:
    """The standard library's own modules by ascending POSIX path, up to STDLIB_LIMIT_BYTES."""
    root = Path(location or sysconfig.get_paths()["stdlib"])
    total_bytes = 0
    for name in sorted(_stdlib_names(root)):
        if total_bytes >= STDLIB_LIMIT_BYTES:
            return
        text = _read(root / name)
        total_bytes += len(text)
        yield name, text


def _stdlib_names(root: Path) -> Iterator[str]:
    for folder, children, files in os.walk(root):
        children[:] = [child for child in children if child.isidentifier() and child not in STDLIB_SKIPPED_FOLDERS]
        for file in files:
            generated = file.startswith("_sysconfigdata") or file in STDLIB_SKIPPED_FILES
            if file.endswith(".py") and not generated:
                yield (Path(folder) / file).relative_to(root).as_posix()


def _text_folder(location: str, revision: str) -> Iterator[Document]:
    """Every file below a folder, by ascending POSIX path; files and folders whose name starts with a dot are left."""
    root = Path(location)
    if not root.is_dir():
        raise CorpusError(f"expected a folder of text files at {root}, found no such folder; check the path")
    names = sorted(
        path.relative_to(root).as_posix()
        for path in root.rglob("*")
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(root).parts)
    )
    if not names:
        raise CorpusError(f"expected text files in {root}, found an empty folder; put UTF-8 text files there")
    for name in names:
        yield name, _utf8(root / name)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CorpusError(f"expected to read {path}, found {error.strerror}; check its rights") from error


def _utf8(path: Path) -> bytes:
    text = _read(path)
    if b"\0" in text:
        raise CorpusError(f"expected a text file at {path}, found a binary file; leave only text files in the folder")
    try:
        text.decode()
    except UnicodeDecodeError as error:
        raise CorpusError(
            f"expected UTF-8 text in {path}, found other bytes at position {error.start}; convert the file to UTF-8"
        ) from error
    return text


def _data_set(location: str, revision: str) -> Iterator[Document]:
    """The rows of a data set's split in their order. `location` is PATH[#COLUMN]; without one the column is "text".

    PATH is a local .jsonl, .json, .csv, .parquet or .txt file, a folder that `datasets` can load, or a Hub id, of
    which the revision must be pinned.
    """
    path, _, column = location.partition("#")
    column = column or "text"
    rows = _rows(path, revision)
    if column not in rows.column_names:
        raise CorpusError(
            f"expected a column {column!r} in {path}, found {', '.join(rows.column_names)}; write {path}#COLUMN"
        )
    for number, text in enumerate(rows[column]):
        if not isinstance(text, str):
            raise CorpusError(
                f"expected text in column {column!r} of {path}, found {type(text).__name__} in row {number}; "
                "choose a text column"
            )
        yield str(number), text.encode()


def _rows(path: str, revision: str) -> Any:
    import datasets

    builders = {".jsonl": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet", ".txt": "text"}
    builder = builders.get(Path(path).suffix)
    datasets.disable_progress_bars()
    try:
        if builder is not None:
            return datasets.load_dataset(builder, data_files=path, split="train")
        if not Path(path).exists() and not revision:
            raise CorpusError(
                f"expected a file, a folder, or a data set of the Hub with a pinned revision, found {path!r}; "
                "give the path, or the revision"
            )
        return datasets.load_dataset(path, revision=revision or None, split="train")
    except (
        OSError,
        ValueError,
        datasets.exceptions.DatasetsError,
        datasets.exceptions.DatasetGenerationError,
    ) as error:
        if isinstance(error, CorpusError):
            raise
        reason = " ".join(str(error).split())[:200]
        raise CorpusError(
            f"expected a readable data set at {path}, found {reason!r}; check path and network"
        ) from error


def _pack(documents: list[Document], tokenizer: str) -> Corpus:
    """All documents' tokens in one row, a separator after each, in the smallest dtype that holds them."""
    hasher = blake3.blake3(b"strata/corpus/1")
    for name, text in documents:
        label = name.encode()
        hasher.update(b"%d %d\n%b%b" % (len(label), len(text), label, text))
    if tokenizer == "bytes":
        row, vocabulary = b"".join(text + bytes([BYTE_SEPARATOR]) for _, text in documents), BYTE_VOCABULARY
        tokens = np.frombuffer(row, dtype=np.uint8)
    else:
        encode, separator, vocabulary = _tokenizer(tokenizer)
        numbers = [token for _, text in documents for token in (*encode(text.decode(errors="replace")), *separator)]
        tokens = np.array(numbers, dtype=np.uint16 if vocabulary <= 1 << 16 else np.int32)
    hasher.update(b"%d %d\n" % (vocabulary, len(tokens)))
    hasher.update(tokens.astype(tokens.dtype.newbyteorder("<"), copy=False).tobytes())
    return Corpus(tokens=tokens, digest=hasher.hexdigest(), vocabulary=vocabulary)


def has_tokenizer(location: str, revision: str) -> bool:
    """Whether a model's folder has a tokenizer; a model of the Hub (at a revision) is taken to have one."""
    return bool(revision) or any((Path(location) / file).is_file() for file in TOKENIZER_FILES)


def tokenizer_files(name: str) -> dict[str, bytes] | None:
    """The files of a tokenizer as transformers saves them, to go with a checkpoint; None for the run on bytes."""
    if name == "bytes":
        return None
    with tempfile.TemporaryDirectory() as folder:
        _load_tokenizer(name).save_pretrained(folder)
        return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}


def _load_tokenizer(name: str) -> Any:
    """The tokenizer of a FOLDER or ID[@REVISION]."""
    import transformers

    path, _, revision = (name, "", "") if Path(name).is_dir() else name.partition("@")
    try:
        return transformers.AutoTokenizer.from_pretrained(path, revision=revision or "main")
    except (OSError, ValueError, KeyError) as error:
        reason = " ".join(str(error).split())[:200]
        raise CorpusError(
            f"expected the tokenizer bytes, a tokenizer's folder or a Hub id, found {name!r} ({reason}); correct it"
        ) from error


def _tokenizer(name: str) -> tuple[Encode, list[int], int]:
    """How a tokenizer encodes, what it puts after a document, and its vocabulary."""
    tokenizer = _load_tokenizer(name)
    separator = [] if tokenizer.eos_token_id is None else [int(tokenizer.eos_token_id)]

    def encode(text: str) -> list[int]:
        return [int(token) for token in tokenizer.encode(text, add_special_tokens=False)]

    return encode, separator, len(tokenizer)
