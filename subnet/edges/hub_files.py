"""The files of a model on the Hugging Face Hub, any part of which can be read: of a shard only the tensors asked for.

The token is `huggingface_hub`'s business (`hf auth login`, HF_TOKEN) and is never looked at here, and so are the waits
that a busy Hub asks for. Used at a run's start only.
"""

import contextlib
from collections.abc import Iterator

import httpx2
from huggingface_hub import HfApi, get_hf_file_metadata, hf_hub_url
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, HFValidationError, RepositoryNotFoundError
from huggingface_hub.utils import build_hf_headers, hf_raise_for_status, http_backoff

from subnet.errors import ModelError, StoreError

TIMEOUT_S = 30.0
RETRIES = 3


class HubSource:
    """The files of one model at one revision."""

    def __init__(self, model: str, revision: str) -> None:
        self._model = model
        self._revision = revision
        self._sizes: dict[str, int | None] = {}

    @property
    def name(self) -> str:
        return f"the Hub's {self._model}"

    def size(self, file: str) -> int | None:
        if file not in self._sizes:
            with _faults(self._model, file):
                try:
                    url = hf_hub_url(self._model, file, revision=self._revision)
                    self._sizes[file] = get_hf_file_metadata(url, headers=build_hf_headers(), timeout=TIMEOUT_S).size
                except EntryNotFoundError:
                    self._sizes[file] = None
        return self._sizes[file]

    def read(self, file: str, start: int, length_bytes: int) -> bytes:
        if not length_bytes:
            return b""
        wanted = {**build_hf_headers(), "Range": f"bytes={start}-{start + length_bytes - 1}"}
        with _faults(self._model, file):
            url = hf_hub_url(self._model, file, revision=self._revision)
            answer = http_backoff("GET", url, headers=wanted, timeout=TIMEOUT_S, max_retries=RETRIES)
            hf_raise_for_status(answer)
            data: bytes = answer.content
        if answer.status_code != 206 and (start, length_bytes) == (0, self.size(file)):
            return data
        if answer.status_code != 206 or len(data) != length_bytes:
            raise StoreError(
                f"expected {length_bytes} bytes of {file} of {self.name}, found {len(data)} with status "
                f"{answer.status_code}; try again later, or download the model and name its folder"
            )
        return data


def pinned_revision(model: str, revision: str) -> str:
    """The commit that a branch or tag of a model is now at. Raises ModelError or StoreError."""
    with _faults(model, "its revision"):
        return str(HfApi().model_info(model, revision=revision or None, timeout=TIMEOUT_S).sha)


@contextlib.contextmanager
def _faults(model: str, what: str) -> Iterator[None]:
    """What the Hub or the way to it says, in our words."""
    try:
        yield
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise ModelError(
            f"expected a model {model} on the Hub that may be read, found none; check the name, log in with `hf auth "
            "login` where it is private or gated, or give a folder"
        ) from error
    except (HfHubHTTPError, httpx2.HTTPError, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise StoreError(
            f"expected {what} of {model} from the Hub, found {reason!r}; try again later, or download the model and "
            "name its folder"
        ) from error
