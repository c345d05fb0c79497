"""What failures of a download are called, and which of them are tried again."""

import errno

import pytest
from huggingface_hub.utils import get_session

from vramscope.loading.hub_process import explain
from vramscope.loading.hub_transfer import TRIES, RequestFailure, Transfer

ID = "org/name"


def test_a_hub_that_is_not_there_is_one_sentence(tmp_path):
    """By the transfer itself, whose pauses are recorded and not waited for."""
    pauses, told = [], []
    transfer = Transfer("org/none", "main", tmp_path, pause=pauses.append, on_failure=told.append)
    failure = httpx_error()
    for _ in range(TRIES - 1):
        transfer._bear(failure, came=False)
    with pytest.raises(RequestFailure):
        transfer._bear(failure, came=False)
    assert pauses == [1, 2, 4, 8, 16]
    assert told == [failure] * len(pauses)
    message, hint = explain(failure, transfer)
    assert message.startswith("org/none: no connection to http")
    assert message.endswith(": ConnectError")
    assert "the next fetch goes on" in hint


def httpx_error() -> Exception:
    """What the library's own client raises where nobody listens."""
    with pytest.raises(RequestFailure) as caught:
        get_session().get("http://127.0.0.1:9/")
    return caught.value


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "is full"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "is full"),
        (OSError(errno.EROFS, "Read-only file system"), "cannot be written: Read-only file system"),
        (OSError("Consistency check failed"), "the hub sends another number of bytes than it names"),
        (ValueError("too\nlarge"), "the download failed: ValueError: too"),
    ],
)
def test_what_goes_wrong_on_this_machine_is_one_sentence(tmp_path, error, said):
    message, _ = explain(error, Transfer(ID, "main", tmp_path))
    assert message.startswith(f"{ID}: ")
    assert said in message
    assert "\n" not in message


def test_a_full_disk_is_not_tried_again(tmp_path):
    pauses = []
    full = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(OSError, match="No space left"):
        Transfer(ID, "main", tmp_path, pause=pauses.append)._bear(full, came=True)
    assert pauses == []
