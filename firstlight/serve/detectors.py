"""The detectors room: faults that a text shows by itself, whatever was asked.

Tuned so that a sound text is almost never called broken: a finding fails a server.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from firstlight.serve import salad


@dataclass(frozen=True)
class Finding:
    """One fault of a text; `evidence` is the piece that shows it."""

    kind: str
    evidence: str


def findings(text: str) -> tuple[Finding, ...]:
    """Every fault found, in the order of the checks; an empty text has that fault alone."""
    if not text.strip():
        return (Finding("empty", repr(text[:20])),)
    found = (detector(text) for detector in _DETECTORS)
    return tuple(finding for finding in found if finding)


def one_character(text: str) -> Finding | None:
    """A long run of one character, or a text made of nothing else.

    Rules and borders of tables and drawings run long in sound texts, so they may run longer.
    """
    for run in _RUN.finditer(text):
        char, length = run[1], len(run[0])
        limit = 160 if char in _RULING else 10 if char in _SUSPECT else 24
        if char in _ENDLESS and not text[run.end() :].strip() and _follows(text, run.start(), char):
            limit = _ENDLESS[char]
        alone = length >= 6 and length >= 0.9 * len(text.strip())
        if length >= limit or alone:
            return Finding("one character", f"{char!r} {length} times in a row")
    return None


def tail_loop(text: str) -> Finding | None:
    """A text that ends in one piece said again and again.

    The shortest period whose repetitions reach back far enough, found by Z-values of the
    reversed tail: z[p] + p characters at the end have period p.
    """
    tail = _squeezed(text)[-_TAIL:]
    for period, match in enumerate(_z_values(tail[::-1])):
        if not period:
            continue
        covered = match + period
        if covered >= 3 * period and covered >= _too_far(unit := tail[-period:]):
            return Finding("loop", f"{unit.strip()[:60]!r} {covered // period} times at the end")
    return None


def _too_far(unit: str) -> float:
    """How many characters of a text's end one piece of it may fill at most."""
    period = len(unit)
    if unit.isdigit():
        return 160.0
    if _has_words(unit):
        needed = 3.0 if period >= 80 else 4.0 if period >= 20 else 5.0 if " " in unit else 6.0
        # Two of these letters say what a word does.
        if 2 * len(_HAN.findall(unit)) >= period > 1:
            return max(40.0, needed * period)
        return max(80.0, needed * period)
    # No drawing and no table repeats these.
    return max(40.0, 15.0 * period) if _STUTTERED.intersection(unit) else math.inf


def repeated_phrases(text: str) -> Finding | None:
    """A stretch of 80 words of which most three-word pieces were said before in the stretch."""
    words = _WORD.findall(text.lower())
    for start in range(0, max(1, len(words) - _STRETCH + 1), _STRETCH // 2):
        stretch = words[start : start + _STRETCH]
        # Of numbers, and of letters that stand alone, sound tables are made.
        figures = sum(word.isdigit() or len(word) == 1 for word in stretch)
        if len(stretch) < _STRETCH // 2 or figures > len(stretch) / 3:
            continue
        threes = list(zip(stretch, stretch[1:], stretch[2:], strict=False))
        share = 1 - len(set(threes)) / len(threes)
        if share > 0.7:
            phrase, count = Counter(threes).most_common(1)[0]
            return Finding("loop", f"{' '.join(phrase)!r} {count} times in {len(stretch)} words")
    return None


def stuttering_word(text: str) -> Finding | None:
    """One word many times in a row: it makes sound sentences up to eleven times."""
    words = _WORD.findall(text)
    most = 5 if len(set(words)) == 1 else 11
    words = [word.lower() for word in words]
    run = 1
    for before, word in pairwise(words):
        run = run + 1 if before == word and not word.isdigit() else 1
        if run > most and run * len(word) >= 18:
            return Finding("loop", f"{word!r} {run} times in a row")
    return None


def doubled_words(text: str) -> Finding | None:
    """A stretch where every fourth word says the one before it again, and several words do so."""
    words = list(_LONGER.finditer(salad.CODE.sub("\n", text.lower())))
    for start in range(0, max(1, len(words) - _SHORT + 1), _SHORT // 2):
        stretch = words[start : start + _SHORT]
        doubled = [b[0] for a, b in pairwise(stretch) if a[0] == b[0] and b.start() - a.end() == 1]
        several = len(set(doubled)) > 2 and len({word[0] for word in stretch}) > 5
        if several and len(doubled) >= max(8, 0.25 * len(stretch)):
            told = ", ".join(repr(word) for word, _ in Counter(doubled).most_common(3))
            return Finding("loop", f"{len(doubled)} words said twice in {len(stretch)}, as {told}")
    return None


def replacement_characters(text: str) -> Finding | None:
    """U+FFFD inside a text; one at the very end is a character that the length limit cut."""
    count = text.rstrip().removesuffix("\ufffd").count("\ufffd")
    return Finding("replacement characters", f"{count} of U+FFFD") if count else None


def mojibake(text: str) -> Finding | None:
    """UTF-8 that was read as Latin-1: `Ã¼` for an umlaut, `â€™` for an apostrophe."""
    found = _MOJIBAKE.findall(salad.CODE.sub(" ", text))
    return Finding("mojibake", " ".join(found[:3])) if len(found) > 2 else None


def special_tokens(text: str) -> Finding | None:
    """Control tokens of a chat template in the answer; those quoted as code do not count.

    Markers of tool calls are not among them: without a parser they belong to the answer.
    """
    bare = salad.CODE.sub(" ", text)
    found = _SPECIAL.findall(bare)
    if bare.rstrip().endswith("</s>") and "<s>" not in bare:
        found.append("</s>")
    return Finding("special tokens", " ".join(found[:3])) if found else None


def _of(kind: str, look: Callable[[str], str | None]) -> Callable[[str], Finding | None]:
    """A look of the salad room as a detector."""

    def detector(text: str) -> Finding | None:
        evidence = look(text)
        return Finding(kind, evidence) if evidence else None

    return detector


_TAIL = 3000
_SHORT = 40
_LONGER = re.compile(r"[^\W\d_]{2,}")
_STRETCH = 80
_RUN = re.compile(r"([^\s\u2800])\1{5,}")  # U+2800 is a blank of Braille drawings
_RULING = frozenset("-=_*~.#|+─━│┃═║┌┐└┘├┤┬┴┼╔╗╚╝╠╣█▓▒░▄▀/\\0123456789")
# Token 0 of many vocabularies: what a model of NaNs says.
_SUSPECT = frozenset('!"?')
# Of these a run behind other text, with nothing after it, is no ruler.
_ENDLESS = {"#": 10, "-": 30, "=": 30}
_WORD = re.compile(r"[^\W_]+")
_SPECIAL = re.compile(
    r"<[|\uff5c](?!\w*?(?:tool|python|plugin|action|function|arg))[A-Za-z][\w▁]{2,40}[|\uff5c]>"
    r"|<unused\d+>|<extra_id_\d+>|<0x[0-9A-F]{2}>|\[UNK_BYTE_|\[(?:control_|unused)\d+\]"
    r"|<(?:start|end)_of_turn>|(?:\[/?INST\]\s*){2,}|<(?:pad|unk|bos|eos)>|(?:</?s>\s*){2,}"
    r"|\u2047"  # what SentencePiece writes for an unknown token
)
_MOJIBAKE = re.compile(
    r"\u00c3[\u0080-\u00bf\u0160\u0178\u017d]|\u00e2\u20ac[\u2122\u0153\u009d\u201c\u201d\u00a6\u02dc]"
    r"|[\u00d0\u00d1][\u0080-\u00bf]"
)
_HAN = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7a3]")
_STUTTERED = frozenset(",;\"'`?!")
_PADDING = re.compile(r"[ \t\u00a0\u2800]{2,}")
_RULER = re.compile(r"([-=_*~.#|+─━═:] ?)\1{5,}")

_DETECTORS: tuple[Callable[[str], Finding | None], ...] = (
    one_character,
    tail_loop,
    repeated_phrases,
    stuttering_word,
    doubled_words,
    replacement_characters,
    mojibake,
    special_tokens,
    _of("loop", salad.looping_syllables),
    _of("mixed scripts", salad.mixed_scripts),
    _of("word salad", salad.glued_words),
    _of("word salad", salad.no_small_words),
    _of("word salad", salad.few_words_thrown),
    _of("word salad", salad.thrown_characters),
    _of("raw pieces of tokens", salad.raw_pieces),
)


def _squeezed(text: str) -> str:
    """Padding and rulers of tables and drawings cut short: they repeat in sound texts too."""
    return _RULER.sub(r"\1\1", _PADDING.sub(" ", text.rstrip()))


def _begins_line(text: str, at: int) -> bool:
    return not text[text.rfind("\n", 0, at) + 1 : at].strip()


def _follows(text: str, at: int, char: str) -> bool:
    """True where a run stands behind other text of its line; of rulers, behind a letter."""
    return not _begins_line(text, at) and (char == "#" or text[at - 1].isalnum())


def _has_words(unit: str) -> bool:
    return any(char.isalnum() for char in unit)


def _z_values(text: str) -> list[int]:
    """For each place, how many characters from there on equal the text's beginning; linear."""
    values = [0] * len(text)
    left = right = 0
    for at in range(1, len(text)):
        length = min(right - at, values[at - left]) if at < right else 0
        while at + length < len(text) and text[length] == text[at + length]:
            length += 1
        values[at] = length
        if at + length > right:
            left, right = at, at + length
    return values
