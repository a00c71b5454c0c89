"""Corpora from outside: pinned, the same on two machines with the same files, refused with one sentence otherwise."""

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from subnet.edges.data import STDLIB_LIMIT_BYTES, load_corpus, measure_corpus
from subnet.errors import CorpusError
from tests.data.small import small_run


def text_folder(root: Path, files: dict[str, bytes]) -> str:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    return str(root)


def measure_text(folder: str):
    return measure_corpus("text", folder, "", "bytes")


# --- the standard library


def test_the_default_corpus_is_the_standard_librarys_source():
    corpus = measure_corpus("stdlib", "", "", "bytes")
    assert corpus.vocabulary == 256
    assert corpus.tokens.dtype == np.uint8
    assert 4_000_000 < len(corpus.tokens) < STDLIB_LIMIT_BYTES + 1_000_000
    text = corpus.tokens.tobytes()
    assert Path(ast.__file__).read_bytes() in text
    assert b"site-packages/hypothesis" not in text
    assert measure_corpus("stdlib", "", "", "bytes").digest == corpus.digest


@pytest.mark.flow
def test_a_process_of_its_own_finds_the_same_corpus_without_any_large_library():
    lines = (
        "import sys",
        "from subnet.edges.data import measure_corpus",
        "found = measure_corpus('stdlib', '', '', 'bytes').digest",
        "large = {'torch', 'transformers', 'datasets'} & set(sys.modules)",
        "sys.stdout.write(found + ' ' + ' '.join(large))",
    )
    answer = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == [measure_corpus("stdlib", "", "", "bytes").digest]


def test_tests_packages_and_generated_files_are_left_out(tmp_path: Path):
    kept = {"a.py": b"a = 1\n", "email/b.py": b"b = 1\n", "data.txt": b"no module", "z.py": b"z = 1\n"}
    skipped = ("test/t.py", "unittest/test/t.py", "distutils/tests/t.py", "site-packages/x/t.py", "__pycache__/t.py")
    skipped += ("_sysconfigdata__linux_.py", "config-3.11-x86_64/python-config.py", "sitecustomize.py")
    root = text_folder(tmp_path, kept | dict.fromkeys(skipped, b"t = 1\n"))
    corpus = measure_corpus("stdlib", root, "", "bytes")
    assert corpus.tokens.tobytes() == b"a = 1\n\0b = 1\n\0z = 1\n\0"


def test_another_python_version_is_named_as_the_remedy(tmp_path: Path):
    data = msgspec.structs.replace(small_run().data, source="stdlib", location=text_folder(tmp_path, {"a.py": b"a"}))
    with pytest.raises(CorpusError, match="found .*; use the Python version that the run was made with"):
        load_corpus(data)


# --- a folder of text


def test_files_are_packed_by_path_with_a_separator_after_each(tmp_path: Path):
    root = text_folder(tmp_path, {"b.txt": b"second", "a/z.md": "erst\u00e9".encode(), ".hidden": b"x", ".git/c": b"x"})
    assert measure_text(root).tokens.tobytes() == "erst\u00e9\0second\0".encode()


def test_two_machines_with_the_same_files_agree_wherever_they_lie(tmp_path: Path):
    first = text_folder(tmp_path / "one", {"a.txt": b"aa", "b.txt": b"bb"})
    second = str(shutil.copytree(first, tmp_path / "two" / "elsewhere"))
    assert measure_text(first).digest == measure_text(second).digest


@pytest.mark.parametrize(
    "files",
    [
        {"a.txt": b"aa", "b.txt": b"bc"},
        {"a.txt": b"aa", "c.txt": b"bb"},
        {"a.txt": b"aa"},
        {"a.txt": b"aab", "b.txt": b"b"},
        {"a.txt": b"aa", "b.txt": b"bb", "c.txt": b""},
    ],
)
def test_any_difference_changes_the_digest_and_is_refused_by_the_run(tmp_path: Path, files: dict[str, bytes]):
    original = measure_text(text_folder(tmp_path / "one", {"a.txt": b"aa", "b.txt": b"bb"}))
    other = text_folder(tmp_path / "two", files)
    data = msgspec.structs.replace(small_run().data, location=other, corpus_digest=original.digest)
    assert measure_text(other).digest != original.digest
    with pytest.raises(CorpusError, match=f"expected the corpus {original.digest[:16]} of source text, found .*; copy"):
        load_corpus(data)


def test_the_runs_own_corpus_is_loaded(tmp_path: Path):
    folder = text_folder(tmp_path, {"a.txt": b"aa"})
    digest = measure_text(folder).digest
    assert (
        load_corpus(msgspec.structs.replace(small_run().data, location=folder, corpus_digest=digest)).digest == digest
    )


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({}, "expected text files in .*, found an empty folder; put UTF-8 text files there"),
        ({"a.txt": b""}, "expected text in .*, found none; choose a source that has some"),
        ({"a.bin": b"\x7fELF\0\0"}, "expected a text file at .*a.bin, found a binary file"),
        ({"a.txt": b"ok", "b.txt": b"caf\xe9"}, "expected UTF-8 text in .*b.txt, found other bytes at position 3"),
    ],
)
def test_a_folder_that_is_not_text_is_refused(tmp_path: Path, files: dict[str, bytes], sentence: str):
    with pytest.raises(CorpusError, match=sentence):
        measure_text(text_folder(tmp_path, files))


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(CorpusError, match="expected a folder of text files at .*nowhere, found no such folder"):
        measure_text(str(tmp_path / "nowhere"))


def test_an_unknown_source_is_refused():
    with pytest.raises(CorpusError, match="expected the data source stdlib, text, datasets, found 'tape'"):
        measure_corpus("tape", "", "", "bytes")


# --- a `datasets` data set, and a tokenizer


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    texts = ["to be or not to be", "that is the question", "\u00fcber"]
    lines = [json.dumps({"text": text, "other": text.upper(), "number": 1}) for text in texts]
    (folder / "rows.jsonl").write_text("\n".join(lines))
    return folder


def test_a_jsonl_and_a_parquet_file_of_the_same_rows_are_the_same_corpus(rows: Path):
    import datasets

    expected = "to be or not to be\0that is the question\0\u00fcber\0".encode()
    from_json = measure_corpus("datasets", str(rows / "rows.jsonl"), "", "bytes")
    assert from_json.tokens.tobytes() == expected
    datasets.Dataset.from_json(str(rows / "rows.jsonl")).to_parquet(rows / "rows.parquet")
    assert measure_corpus("datasets", str(rows / "rows.parquet"), "", "bytes").digest == from_json.digest


def test_another_column_is_chosen_by_name(rows: Path):
    corpus = measure_corpus("datasets", f"{rows / 'rows.jsonl'}#other", "", "bytes")
    assert corpus.tokens.tobytes().startswith(b"TO BE OR")


@pytest.mark.parametrize(
    ("location", "sentence"),
    [
        ("rows.jsonl#body", "expected a column 'body' in .*, found text, other, number; write .*#COLUMN"),
        ("rows.jsonl#number", "expected text in column 'number' of .*, found int in row 0"),
        ("none.jsonl", "expected a readable data set at .*none.jsonl, found"),
        ("none", "expected a file, a folder, or a data set of the Hub with a pinned revision, found"),
    ],
)
def test_a_data_set_that_cannot_be_read_is_refused(rows: Path, location: str, sentence: str):
    with pytest.raises(CorpusError, match=sentence):
        measure_corpus("datasets", str(rows / location), "", "bytes")


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tokenizer of whole words with an end-of-text token, saved as `transformers` saves it."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("words")
    names = ["<unk>", "<eos>", "to", "be", "or", "not", "that", "is", "the", "question"]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(names)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>", unk_token="<unk>")
    fast.save_pretrained(folder)
    return str(folder)


def test_a_tokenizer_packs_documents_with_its_end_of_text_between_them(rows: Path, words: str):
    corpus = measure_corpus("datasets", str(rows / "rows.jsonl"), "", words)
    assert corpus.tokens.tolist() == [2, 3, 4, 5, 2, 3, 1, 6, 7, 8, 9, 1, 0, 1]
    assert corpus.vocabulary == 10
    assert corpus.digest != measure_corpus("datasets", str(rows / "rows.jsonl"), "", "bytes").digest


def test_a_tokenizer_that_is_not_there_is_refused(rows: Path, tmp_path: Path):
    with pytest.raises(CorpusError, match="expected the tokenizer bytes, a tokenizer's folder or a Hub id, found"):
        measure_corpus("datasets", str(rows / "rows.jsonl"), "", str(tmp_path))
