"""How long texts may be, and what a comparison keeps: without a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstlight.core.errors import FirstlightError, HostError, StepError
from firstlight.flows.comparekeep import keeping
from firstlight.flows.comparescore import Precision, limit_of
from firstlight.serve.effective import Effective


def room(tokens: int, settled: int | None) -> int:
    found = Effective(info_tokens=tokens, context_length=32768)
    return limit_of(found, Precision("bf16", "k", settled), "gpu01")


def test_the_first_settles_how_long_texts_are() -> None:
    assert (room(16384, None), room(99999, None), room(16384, 4096)) == (16384, 32768, 4096)


def test_a_server_that_takes_less_than_those_before_is_told_what_to_do() -> None:
    """It was told to make its pool larger, which for BF16 after FP8 is no cure."""
    with pytest.raises(StepError, match="takes 4096 tokens; those before scored 8192") as told:
        room(4096, 8192)
    assert told.value.remedy.startswith("name bf16 first in --kv, and remove the kept scores")
    with pytest.raises(StepError, match="takes 1024 tokens; 2048 are needed") as told:
        room(1024, None)
    assert "longer context" in told.value.remedy


def test_two_comparisons_of_a_profile_on_a_host_exclude_each_other(tmp_path: Path) -> None:
    kept = keeping(tmp_path, "coder")
    with (
        kept.alone("gpu01"),
        kept.alone("gpu02"),
        pytest.raises(HostError, match="another comparison of profile coder runs"),
        kept.alone("gpu01"),
    ):
        raise AssertionError("both went on")
    with kept.alone("gpu01"):
        pass


def test_a_folder_that_cannot_be_written_is_told_before_a_server_is_touched(tmp_path: Path) -> None:
    (tmp_path / "evidence").write_text("in the way")
    with (
        pytest.raises(FirstlightError, match=r"cannot write .*gpu01\.lock: Not a directory"),
        keeping(tmp_path, "coder").alone("gpu01"),
    ):
        raise AssertionError("it went on")
