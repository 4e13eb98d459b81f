"""`invoke compare`: one launch after another, nothing left behind, and what it cost in figures."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from firstlight.flows import compare
from tests.flows.tiny import NATIVE, Tiny, refused
from tests.flows.watching import processes_of

THREE = ("compare", "--kv", "bf16,fp8_e4m3,fp8_e5m2")


@pytest.fixture
def unpatched(built: Tiny) -> Tiny:
    """The tiny project as it is, of which no patch lets an FP8 cache in on a CPU."""
    return built


@pytest.fixture(autouse=True)
def let_in(built: Tiny, request: pytest.FixtureRequest) -> None:
    """All others measure FP8, whatever processor they run on."""
    if "unpatched" not in request.fixturenames:
        built.let_fp8_in()
        built.profile(NATIVE)


def compared(tiny: Tiny, *words: str, code: int = 0) -> Any:
    """The data of the verb, which must end with that code."""
    done = tiny.project.invoke(*(words or THREE), "--json")
    assert done.returncode == code, done
    assert "Traceback" not in done.stderr
    return json.loads(done.stdout)


def served(tiny: Tiny) -> dict[str, str]:
    """What `status` says of the one deployment."""
    status = json.loads(tiny.project.invoke("status", "--json", check=True).stdout)
    (found,) = status["deployments"]
    return {key: found[key] for key in ("profile", "deployment", "state")}


def left(tiny: Tiny) -> list[str]:
    """What a comparison laid on the host, or runs there."""
    return [str(path) for path in tiny.root.glob("deployments/*.compare*")]


def evidence(tiny: Tiny) -> Path:
    return tiny.project.root / "evidence" / "tiny"


def test_precisions_are_measured_in_turn_and_nothing_is_left(built: Tiny) -> None:
    told = compared(built)
    assert told["first"]["kv"] == "bf16" and told["first"]["kv_dtype"] == "torch.bfloat16"
    e4m3, e5m2 = told["others"]
    assert (e4m3["kv_dtype"], e5m2["kv_dtype"]) == ("torch.float8_e4m3fn", "torch.float8_e5m2")
    assert told["first"]["mean_nll"] < e4m3["mean_nll"] < e5m2["mean_nll"]
    assert 1 > e4m3["whole"]["same_top1"] > e5m2["whole"]["same_top1"]
    assert e4m3["texts"] == e5m2["texts"] == told["first"]["texts"]
    low, high = e5m2["whole"]["loss_95"]
    assert 0 < low <= e5m2["whole"]["loss"] <= high
    assert e4m3["parted"]["at"] == 3
    assert all(needle["found"] for needle in told["first"]["needles"])
    assert (built.servers(), left(built)) == ([], [])
    data, picture = map(Path, told["evidence"])
    assert json.loads(data.read_text())["others"] == told["others"]
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")


def test_the_text_holds_the_table_and_says_which_bucket_is_empty(built: Tiny) -> None:
    text = built.project.invoke("compare", check=True).stdout
    assert "95 % of the loss" in text and "fp8_e4m3: parts at token 3" in text
    again = built.project.invoke("compare", check=True).stdout
    assert "start the server" not in again
    assert again.partition("KV  ")[2].partition("evidence")[0] in text


def test_the_server_of_the_profile_comes_back_as_it_was(built: Tiny) -> None:
    built.project.invoke("deploy", check=True)
    before, links = served(built), sorted(built.root.glob("deployments/tiny/*"))
    told = compared(built)
    assert len(told["others"]) == 2
    assert served(built) == before
    assert sorted(built.root.glob("deployments/tiny/*")) == links
    assert len(built.servers()) == 1 and left(built) == []


def test_a_precision_that_the_engine_refuses_is_told_in_its_own_words(built: Tiny) -> None:
    built.profile(("fault: none", "fault: amx"))
    told = compared(built, code=4)
    (refusal,) = told["refused"]
    assert (refusal["kv"], refusal["code"]) == ("fp8_e4m3", 4)
    assert "CPU FP8 KV cache requires Intel AMX support." in refusal["lines"]
    assert "Intel AMX" in Path(refusal["log"]).read_text()
    assert [other["kv"] for other in told["others"]] == ["fp8_e5m2"]
    assert (built.servers(), left(built)) == ([], [])


def test_a_cache_that_is_not_as_asked_gives_no_figure(built: Tiny) -> None:
    built.profile(("fault: none", "fault: fp8"))
    told = compared(built, code=5)
    assert [one["kv"] for one in told["refused"]] == ["bf16", "fp8_e5m2"]
    assert "asked bf16, found torch.float8_e4m3fn" in told["refused"][0]["what"]
    assert told["first"]["kv"] == "fp8_e4m3" and told["others"] == []


def test_a_nan_is_an_error_and_no_figure(built: Tiny) -> None:
    built.profile(("fault: none", "fault: nan"))
    told = compared(built, code=5)
    assert told["first"] is None and told["evidence"] == []
    assert "is no number (a NaN is sent as null)" in told["refused"][0]["what"]
    assert not list(evidence(built).rglob("*.json"))


def test_a_server_that_dies_while_it_scores_is_told_with_its_cause(built: Tiny) -> None:
    built.profile(("fault: none", "fault: dies"))
    told = compared(built, code=4)
    (refusal,) = told["refused"]
    assert refusal["kv"] == "fp8_e5m2" and "gave no answer to /generate" in refusal["what"]
    assert "torch.OutOfMemoryError: CUDA out of memory." in refusal["lines"]
    assert [other["kv"] for other in told["others"]] == ["fp8_e4m3"]
    assert (built.servers(), left(built)) == ([], [])


def test_ctrl_c_keeps_what_was_finished_and_brings_the_server_back(built: Tiny) -> None:
    built.project.invoke("deploy", check=True)
    before = served(built)
    with built.project.start(*THREE) as process:
        assert process.stdout is not None and process.stderr is not None
        for line in process.stdout:
            if "  bf16: torch.bfloat16, measured in" in line:
                built.loading.touch()
            if "loading weights" in line and built.loading.exists():
                break
        os.kill(process.pid, signal.SIGINT)
        built.loading.unlink()
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in out + err
    assert "again goes on from what is finished" in err
    assert served(built) == before and left(built) == []
    said = built.project.invoke(*THREE, check=True).stdout
    assert "in place: scores of bf16, of 20" in said
    assert "score the texts with bf16" not in said and "score the texts with fp8_e5m2" in said


def test_what_a_killed_comparison_left_is_put_right_by_the_next(built: Tiny) -> None:
    built.project.invoke("deploy", check=True)
    before = served(built)
    with built.project.start(*THREE) as process:
        assert process.stdout is not None
        built.loading.touch()
        assert any("loading weights" in line for line in process.stdout)
        process.kill()
        process.communicate(timeout=60)
    built.loading.unlink()
    assert left(built) != []
    assert "# a comparison was left" in built.project.invoke(*THREE, "--dry-run", check=True).stdout
    compared(built)
    assert served(built) == before and left(built) == []
    assert len(built.servers()) == 1


def test_a_server_that_runs_need_not_make_room_where_nothing_is_measured(built: Tiny) -> None:
    built.project.invoke("deploy", check=True)
    compared(built)
    before = built.servers()
    (built.root / "deployments" / "tiny.compare").mkdir()
    compared(built)
    assert built.servers() == before and len(before) == 1
    assert left(built) == []


def test_a_dry_run_prints_every_launch_and_does_nothing(built: Tiny) -> None:
    shown = built.project.invoke(*THREE, "--dry-run", check=True).stdout
    assert shown.count("score the texts with") == 3
    assert shown.count("--kv-cache-dtype") == 3
    assert built.servers() == [] and not evidence(built).exists()
    assert left(built) == []


@pytest.mark.parametrize(
    "kv, told",
    [
        ("bf16", "--kv takes two precisions or more"),
        ("bf16,fp8_e4m4", "--kv-cache-dtype has no value fp8_e4m4 in release tiny-"),
    ],
)
def test_precisions_that_are_none_are_refused(built: Tiny, kv: str, told: str) -> None:
    assert told in refused(built.project.invoke("compare", "--kv", kv), 2)
    assert processes_of(built.root / "releases") == {}


def test_what_the_engine_refuses_makes_no_server_stop(unpatched: Tiny) -> None:
    """The server was stopped, BF16 measured for minutes, and then FP8 refused."""
    unpatched.profile(NATIVE)
    unpatched.project.invoke("deploy", check=True)
    before = unpatched.servers()
    for words in ((), ("--dry-run",)):
        message = refused(unpatched.project.invoke("compare", *words), 2)
        assert "the engine refuses --kv-cache-dtype fp8_e4m3 here: rule 0.5.20" in message
        assert "an FP8 cache needs Intel AMX and the intel_amx backend" in message
        assert "`invoke audit --profile tiny --host local` shows every value and why" in message
    allowed = "policy: {kv: allow_any, reason: measured in May}\nsmoke:\n"
    unpatched.profile(("kv_cache_dtype: bf16", "kv_cache_dtype: fp8_e4m3"), ("smoke:\n", allowed))
    message = refused(unpatched.project.invoke("deploy"), 5)
    assert "kv_cache_dtype fp8_e4m3 is refused by the engine (rule 0.5.20 mem_cache/" in message
    assert "write args.kv_cache_dtype: bf16" in message
    assert unpatched.servers() == before and len(before) == 1
    assert left(unpatched) == []


def test_a_model_that_is_not_there_yet_is_refused_by_its_flags(unpatched: Tiny) -> None:
    """A comparison makes it first: BF16 was measured before FP8 was refused."""
    unpatched.profile(NATIVE)
    folder = unpatched.root.parent / "model"
    away = folder.rename(folder.with_name("away"))
    try:
        message = refused(unpatched.project.invoke("compare"), 2)
    finally:
        away.rename(folder)
    assert "the engine refuses --kv-cache-dtype fp8_e4m3 here: rule 0.5.20" in message


def test_a_server_that_makes_room_is_told_before(built: Tiny) -> None:
    built.project.invoke("deploy", check=True)
    text = built.project.invoke("compare", check=True).stdout
    said = "the server of tiny that runs there is stopped for this, and started again at the end"
    assert 0 <= text.index(said) < text.index("stop the server")


def test_the_help_says_what_it_takes_by_itself(built: Tiny) -> None:
    text = " ".join(built.project.invoke("--help", "compare", check=True).stdout.split())
    assert "by default bf16,fp8_e4m3" in text
    assert compare._USUAL == "bf16,fp8_e4m3"
