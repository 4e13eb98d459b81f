"""unified_diff.py: what difflib and diff write, applied and taken back; and what does not fit."""

from __future__ import annotations

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unified_diff import Fault, Misfit, apply_patch, is_applied, parse

# Few different lines, so that contexts repeat and a hunk could go astray; odd ones among them.
LINES = st.sampled_from(["a\n", "b\n", "\n", "  c\n", "--- d\n", "+++ e\n", "\x0c\r\n", "\udc80\n"])
TEXTS = st.builds(
    lambda lines, tail: "".join(lines) + tail,
    st.lists(LINES, max_size=30),
    st.sampled_from(["", "no newline at the end"]),
)


def difference(old: str | None, new: str | None, path: str = "p/f.py", context: int = 3) -> str:
    """A patch for one file, as `diff -u` would write it."""
    lines = difflib.unified_diff(
        split(old or ""),
        split(new or ""),
        "/dev/null" if old is None else f"a/{path}",
        "/dev/null" if new is None else f"b/{path}",
        n=context,
    )
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


def split(text: str) -> list[str]:
    """Lines as patches count them; str.splitlines sees more ends than that."""
    pieces = text.split("\n")
    return [f"{piece}\n" for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])


def nothing(_: str) -> None:
    """A tree without files."""


def patched(text: str, patch: str) -> tuple[str | None, list[str]]:
    changes, notes = apply_patch(list(parse(patch, "x.patch")), {"p/f.py": text}.get)
    return changes["p/f.py"], notes


@given(TEXTS, TEXTS, st.integers(0, 4))
def test_what_difflib_writes_gives_the_second_text(old: str, new: str, context: int) -> None:
    patch = difference(old, new, context=context)
    if patch:
        assert patched(old, patch) == (new, [])


@given(TEXTS, TEXTS)
def test_a_patch_is_known_in_what_it_made(old: str, new: str) -> None:
    if patch := difference(old, new):
        assert is_applied(list(parse(patch, "x.patch")), {"p/f.py": new}.get)


@given(TEXTS)
def test_files_are_made_and_deleted(text: str) -> None:
    if not text:
        return
    made, _ = apply_patch(list(parse(difference(None, text), "x")), nothing)
    assert made == {"p/f.py": text}
    gone, _ = apply_patch(list(parse(difference(text, None), "x")), {"p/f.py": text}.get)
    assert gone == {"p/f.py": None}


@given(TEXTS, TEXTS, TEXTS)
def test_a_patch_for_another_text_fits_whole_or_says_so(old: str, new: str, other: str) -> None:
    patch = difference(old, new)
    if not patch:
        return
    try:
        after, _ = patched(other, patch)
    except Misfit:
        return
    if not new:
        return  # what leaves nothing of a text does not say where in another it was
    # It fitted, so taking it back must be possible too.
    assert after is not None
    assert is_applied(list(parse(patch, "x.patch")), {"p/f.py": after}.get)


def numbered(count: int) -> list[str]:
    return [f"line {n}\n" for n in range(1, count + 1)]


def test_a_hunk_that_moved_is_found_and_told() -> None:
    old = numbered(20)
    patch = difference("".join(old), "".join([*old[:9], "new\n", *old[9:]]))
    after, notes = patched("".join(["above\n", "above\n", *old]), patch)
    assert after == "".join(["above\n", "above\n", *old[:9], "new\n", *old[9:]])
    assert notes == ["p/f.py, hunk 1 of 1 (@@ -7,6 +7,7 @@): +2 lines from where it says"]


def test_one_space_in_a_context_line_is_a_misfit_with_both_lines() -> None:
    old = numbered(20)
    patch = difference("".join(old), "".join([*old[:9], "new\n", *old[9:]]))
    old[7] = "line  8\n"
    with pytest.raises(Misfit) as caught:
        patched("".join(old), patch)
    assert str(caught.value) == "p/f.py, hunk 1 of 1 (@@ -7,6 +7,7 @@)"
    assert caught.value.shown == (
        "  line 8",
        r"  expected: 'line 8\n'",
        r"  found:    'line  8\n'",
    )


def test_hunks_keep_their_order() -> None:
    old = numbered(40)
    new = [*old[:4], "x\n", *old[4:34], "y\n", *old[34:]]
    patch = difference("".join(old), "".join(new))
    swapped = "".join([*old[20:], *old[:20]])
    with pytest.raises(Misfit, match="hunk 2 of 2"):
        patched(swapped, patch)


def test_words_of_a_mail_around_the_diff_are_no_part_of_it() -> None:
    patch = difference("a\nb\n", "a\nc\n")
    mail = f"From: me\nSubject: why\n\n---\n f.py | 2 +-\n\n{patch}-- \n2.40.1\n"
    assert patched("a\nb\n", mail) == ("a\nc\n", [])


def test_two_files_and_the_same_file_twice() -> None:
    patch = (
        difference("a\n", "b\n")
        + difference("1\n", "2\n", path="p/g.py")
        + difference("b\n", "c\n")
    )
    diffs = list(parse(patch, "x.patch"))
    changes, _ = apply_patch(diffs, {"p/f.py": "a\n", "p/g.py": "1\n"}.get)
    assert changes == {"p/f.py": "c\n", "p/g.py": "2\n"}
    assert is_applied(diffs, {"p/f.py": "c\n", "p/g.py": "2\n"}.get)
    assert not is_applied(diffs, {"p/f.py": "c\n", "p/g.py": "1\n"}.get)


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ("--- a/../x\n+++ b/../x\n@@ -1 +1 @@\n-a\n+b\n", "leads out of the wheel"),
        ("--- /etc/passwd\n+++ /etc/passwd\n@@ -1 +1 @@\n-a\n+b\n", "leads out of the wheel"),
        ("--- f.py\n+++ f.py\n@@ -1 +1 @@\n-a\n+b\n", "leads out of the wheel"),
        ("--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n-a\n+b\n", r"x.patch:6: hunk .* ends too early"),
        ("--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n\n-a\n+b\n", r"x.patch:4: hunk .* ends too early"),
        ("--- a/f\n+++ b/f\n@@ what @@\n", "x.patch:3: '@@ what @@' is no hunk"),
        ("diff --git a/f b/g\nrename from f\nrename to g\n", "x.patch:2: renames"),
        ("diff --git a/f b/f\nGIT binary patch\nliteral 3\n", "x.patch:2: renames and binary"),
    ],
)
def test_a_patch_that_cannot_be_read_says_where(patch: str, words: str) -> None:
    with pytest.raises(Fault, match=words):
        list(parse(patch, "x.patch"))


def test_to_create_what_is_there_or_change_what_is_not() -> None:
    with pytest.raises(Misfit, match=r"p/f.py is there already"):
        patched("a\n", difference(None, "b\n"))
    with pytest.raises(Misfit, match=r"p/f.py is not there"):
        apply_patch(list(parse(difference("a\n", "b\n"), "x")), nothing)
    with pytest.raises(Misfit, match="holds more than the patch says"):
        patched("a\nb\n", difference("a\n", None))
