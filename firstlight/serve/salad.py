"""The salad room: texts that no language puts together, told without knowing what was asked.

Each function gives the piece that shows the fault, or None. They look at how tokens are joined,
not at what they mean, so that a sound text in any language, and code, is left alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)

# Letters by script, from the blocks of the Unicode standard; Han and kana count as one.
_SCRIPTS = {
    "Latin": r"A-Za-z\u00aa\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u1e00-\u1eff",
    "Greek": r"\u0370-\u03ff\u1f00-\u1fff",
    "Cyrillic": r"\u0400-\u052f",
    "Armenian": r"\u0531-\u058f",
    "Hebrew": r"\u05d0-\u05ea",
    "Arabic": r"\u0620-\u063f\u0641-\u06d3\u06fa-\u06ff\u0750-\u077f",
    "Devanagari": r"\u0900-\u0963\u0971-\u097f",
    "Bengali": r"\u0980-\u09e5",
    "Gurmukhi": r"\u0a01-\u0a65",
    "Gujarati": r"\u0a81-\u0ae5",
    "Odia": r"\u0b01-\u0b65",
    "Tamil": r"\u0b82-\u0be5",
    "Telugu": r"\u0c00-\u0c65",
    "Kannada": r"\u0c80-\u0ce5",
    "Malayalam": r"\u0d00-\u0d65",
    "Sinhala": r"\u0d81-\u0de5",
    "Thai": r"\u0e01-\u0e3a\u0e40-\u0e4e",
    "Lao": r"\u0e81-\u0ecd",
    "Burmese": r"\u1000-\u103f",
    "Georgian": r"\u10d0-\u10ff",
    "Ethiopic": r"\u1200-\u137c",
    "Khmer": r"\u1780-\u17d3",
    "Hangul": r"\u1100-\u11ff\uac00-\ud7a3",
    "Han": r"\u3040-\u309f\u30a0-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff",
}
_LETTERS = re.compile("|".join(f"(?P<{name}>[{span}]+)" for name, span in _SCRIPTS.items()))
# Written without spaces, or with endings on foreign words: they stand next to any script.
_JOINED = frozenset({"Han", "Hangul", "Thai", "Lao", "Burmese", "Khmer"})
# Latin and Greek stand in formulas of any language.
_FORMULA = frozenset({"Latin", "Greek"})


@dataclass(frozen=True)
class _Run:
    """Letters of one script without a gap; `gap` is what stands between it and the one before."""

    script: str
    text: str
    gap: str


def mixed_scripts(text: str) -> str | None:
    """Scripts that meet inside words, or many that follow each other without a mark between."""
    runs = list(_runs(CODE.sub("\n", text)))
    hybrids = [(a, b) for a, b in pairwise(runs) if _is_hybrid(a, b)]
    foreign = [pair for pair in hybrids if "Latin" not in (pair[0].script, pair[1].script)]
    if foreign or len({a.text + b.text for a, b in hybrids}) > 1:
        return " ".join(a.text + b.text for a, b in (foreign or hybrids)[:3])
    flowing, glued = (_meeting(runs, gaps) - _FORMULA for gaps in (("", " "), ("",)))
    if len(flowing) > 2 and glued:
        return f"{' and '.join(sorted(flowing))} in one flow of words"
    glued -= {"Hangul"}
    if len(glued) > 1 and sum(len(run.text) for run in runs) <= _BRIEF:
        return f"{' and '.join(sorted(glued))} glued to other letters"
    return None


_BRIEF = 250


def _runs(text: str) -> Iterator[_Run]:
    end = 0
    for found in _LETTERS.finditer(text):
        yield _Run(found.lastgroup or "", found[0], text[end : found.start()])
        end = found.end()


def _is_hybrid(before: _Run, run: _Run) -> bool:
    """True where two scripts share a word that no language writes so."""
    scripts = {before.script, run.script}
    if run.gap or len(scripts) < 2 or scripts & _JOINED or scripts == _FORMULA:
        return False
    # An acronym takes the endings of the language around it.
    if any(part.script == "Latin" and part.text.isupper() for part in (before, run)):
        return False
    short, long = sorted((len(before.text), len(run.text)))
    return short > 1 or ("Latin" not in scripts and long > 2)


def _meeting(runs: Sequence[_Run], gaps: tuple[str, ...]) -> set[str]:
    """The scripts that stand next to another one with nothing but one of these gaps between."""
    met = ((a, b) for a, b in pairwise(runs) if b.gap in gaps and a.script != b.script)
    return {run.script for pair in met for run in pair}


def glued_words(text: str) -> str | None:
    """Latin words thrown in a line: many with a seam inside or very long, no small word between.

    A few such words are a list, and so are many with capitals.
    """
    text = CODE.sub("\n", text)
    words = list(_WORD.finditer(text))
    if len(words) < _FEWEST or not _is_mostly_latin(text):
        return None
    is_long = len(words) >= _LIST
    odd = {word[0]: weight for word in words if (weight := _oddness(word[0], is_long))}
    small = sum(word[0].lower() in _SMALL for word in words)
    if sum(odd.values()) < max(3, 0.12 * len(words)) or small > 0.1 * len(words):
        return None
    if _are_names(words) or _flowing(words) < 0.6 * (len(words) - 1):
        return None
    return " ".join([*odd][:3])


def _oddness(word: str, is_long: bool) -> int:
    if len(word) >= 30:
        return 3
    return int(is_long and (len(word) >= 18 or _SEAM.search(word) is not None))


_FEWEST = 6
_LIST = 12
_WORD = re.compile(f"[{_SCRIPTS['Latin']}]+(?:['\u2019][{_SCRIPTS['Latin']}]+)*")
_SEAM = re.compile(r"[a-z\u00df-\u00f6\u00f8-\u00ff]{2}[A-Z\u00c0-\u00d6\u00d8-\u00de]")
# The words that make up a third of a text in the languages that are written in Latin letters.
_SMALL_WORDS = """
a aan about ad af after al all also am an and ang any ao ar are as asta at att au aur aus av ay az
bat be because been before being bij bir bu but by can cho could cu cum că da dan das de del della
dem den der des desu det di did die dla do does dos du e each een egy ei em en er ere es est está
et eta että ex for from från für ga ha had hai har has have he her him his hogy how i if il im in
ini into is it its itu ja je jest již just ka kao katika ke không ki ko ku kwa la las le les los
man may me med meg mga might mit more must my na nay ne nem ng nga ni nicht nie no non not nu não
o och of og oli on one only op or os other ou our out over par para pas per po por pour på que qui
s sa se she shi should si so som some su să te than that the their them then there these they this
those til to tot two u um un una und une uno up us ut van var ve very voor và w wa was we were
what when where which while who wie will with wo would y ya yang you your z za ze zijn zu é że
"""
_SMALL = frozenset(_SMALL_WORDS.split())


def no_small_words(text: str) -> str | None:
    """A long row of ever other words in plain Latin letters, hardly a small one among them.

    Only such, since the languages that have few small words write letters with marks.
    """
    words = list(_WORD.finditer(CODE.sub("\n", text)))
    for start in range(0, max(0, len(words) - _ROW + 1), _ROW // 2):
        row = words[start : start + _ROW]
        said = [word[0].lower() for word in row]
        small = sum(word in _SMALL or len(word) == 1 for word in said)
        if small > _ROW / 12 or len(set(said)) < 0.75 * _ROW or not "".join(said).isascii():
            continue
        if _flowing(row) >= 0.85 * _ROW and said != sorted(said) and not _are_names(row):
            return " ".join(word[0] for word in row[:8])
    return None


_ROW = 60


def _are_names(words: Sequence[re.Match[str]]) -> bool:
    """States, elements, people: lists of them are sound however they are joined."""
    return sum(word[0][0].isupper() for word in words) > 0.6 * len(words)


def _is_mostly_latin(text: str) -> bool:
    letters: Counter[str] = Counter()
    for run in _runs(text):
        letters[run.script] += len(run.text)
    return letters["Latin"] >= 0.7 * letters.total()


def few_words_thrown(text: str) -> str | None:
    """A stretch of a few words again and again, in no order: a loop has one, this has none."""
    words = list(_ANY_WORD.finditer(CODE.sub("\n", text)))
    for start in range(0, max(0, len(words) - _STRETCH + 1), _STRETCH // 2):
        stretch = words[start : start + _STRETCH]
        said = [word[0].lower() for word in stretch]
        counts = Counter(said)
        threes = set(zip(said, said[1:], said[2:], strict=False))
        is_thrown = len(counts) <= 24 and len(threes) >= 0.85 * (_STRETCH - 2)
        if (
            is_thrown
            and _flowing(stretch) >= 0.7 * _STRETCH
            and sum(map(len, said)) >= 3 * _STRETCH
        ):
            common = ", ".join(repr(word) for word, _ in counts.most_common(3))
            return f"{_STRETCH} words, {len(counts)} of them different, such as {common}"
    return None


_STRETCH = 80
_ANY_WORD = re.compile(r"[^\W\d_]+")


def _flowing(words: Sequence[re.Match[str]]) -> int:
    """How many of these words stand behind another one of their line, with blanks alone between."""
    gaps = (word.string[before.end() : word.start()] for before, word in pairwise(words))
    return sum(gap.isspace() and "\n" not in gap for gap in gaps)


def thrown_characters(text: str) -> str | None:
    """A text that is one piece without a blank, of capitals, digits and marks of every kind.

    An expression or a line of code has marks too, but says some of its pieces again; the table of
    ASCII has an order, and a password is shorter.
    """
    piece = max(_SOLID.findall(CODE.sub("\n", text)), key=len, default="")
    marks = {char for char in piece if not char.isalnum()}
    threes = list(zip(piece, piece[1:], piece[2:], strict=False))
    plain = sum(char.isdigit() or char.isupper() for char in piece)
    if len(marks) < 10 or 2 * len(piece) < len(text.strip()) or plain < 0.25 * len(piece):
        return None
    is_thrown = sum(map(str.islower, piece)) <= 0.1 * len(piece)
    is_thrown = is_thrown and list(piece) != sorted(piece)
    return piece[:40] if is_thrown and len(set(threes)) >= 0.97 * len(threes) else None


_SOLID = re.compile(r"[!-~]{48,}")


def looping_syllables(text: str) -> str | None:
    """A piece of a word said again and again without a blank, as `ingingingingingingin`."""
    for found in _SYLLABLES.finditer(CODE.sub("\n", text)):
        if len(set(found[1])) > 2:  # ha ha ha is laughter
            return f"{found[1]!r} {len(found[0]) // len(found[1])} times in a row"
    return None


_SYLLABLES = re.compile(r"((?:(?![\u3040-\u30ff\u4e00-\u9fff])[^\W\d_A-Z]){3,12}?)\1{5,}")


def raw_pieces(text: str) -> str | None:
    """Marks of a tokenizer where blanks and line ends should be: `Ġ`, `Ċ`, and `▁` in words."""
    found = _PIECES.findall(_MARKED.sub(" ", text))
    return " ".join(found[:3]) if len(found) > 2 else None


_MARKED = re.compile(r"(?<!`)`[^`\n]+`(?!`)|<[|\uff5c][^<>\n]{1,60}[|\uff5c]>")
# Maltese has the letter Ġ, but not behind a small one.
_PIECES = re.compile(r"[a-z0-9,.;:!?\"'{}\[\]](?:[ĠĊ]+|▁)(?=[A-Za-z0-9\"'{}\[\]])")
