"""Templates: every value is quoted for its file's language, every mistake is told with its line."""
# ruff: noqa: E501 - a row of a table is one line: what is written, and exactly what is said

from __future__ import annotations

import json
import re
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstlight.core.errors import ConfigError
from firstlight.serve.templates import Ready, fill, systemd_path, systemd_word
from tests.hosts import fleet
from tests.hosts.fleet import TestHost

any_text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)

ODD = ["", "a b", "it's", '"', "$HOME", "${HOME}", "$$", "%h", "%%", "\\", "\\n", "a\nb", "\t", "\x1b",
       "\x7f", "é😀", ";", "-x", "@a", "#", "a=b", "~", "*", "`x`", "{a: 1}", "\\x41", "a\\"]  # fmt: skip


def told(text: str, name: str = "a.sh.j2", **values: object) -> str:
    with pytest.raises(ConfigError) as caught:
        fill(name, {name: text}, values)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\n{{ word }}\n{{ wrod }}", "templates/a.sh.j2:3:1: 'wrod' is undefined; did you mean 'word'?"),
        ("{% if wrod %}{% endif %}", "templates/a.sh.j2:1:1: 'wrod' is undefined; did you mean 'word'?"),
        ("a\n\n{% for w in word %}\n{{ w.x }}{% endfor %}", "templates/a.sh.j2:4:1: 'str object' has no attribute 'x'"),
        ("a\n{% if %}", "templates/a.sh.j2:2:1: not a template: Expected an expression, got 'end of statement block'"),
        ("a\n{% if word %}\nb", "templates/a.sh.j2:3:1: not a template: Unexpected end of template."),
        ("a\n{{ word | shout }}", "templates/a.sh.j2:2:1: not a template: No filter named 'shout'."),
        ("a\n{{ none }}", "templates/a.sh.j2:2:1: a template cannot show a value of type NoneType"),
        ("\n\n{{ nul }}", "templates/a.sh.j2:3:1: a shell word cannot hold a NUL character: 'a\\x00b'"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_line(text: str, message: str) -> None:
    assert told(text, word="w", none=None, nul="a\0b").startswith(message)


def test_a_missing_template_is_told_with_the_nearest() -> None:
    with pytest.raises(ConfigError) as caught:
        fill("lanch.sh.j2", {"launch.sh.j2": "", "systemd.service.j2": ""}, {})
    message = "templates/lanch.sh.j2: there is no such template; did you mean 'launch.sh.j2'?"
    assert str(caught.value) == message


def test_values_are_quoted_for_the_language_of_the_file() -> None:
    values = {"word": "a $b", "words": ("x", "y z"), "path": PurePosixPath("/p q"), "n": 3}
    text = "{{ word }} {{ words }} {{ path }} {{ n }}\n"
    assert fill("a.sh.j2", {"a.sh.j2": text}, values) == "'a $b' x 'y z' '/p q' 3\n"
    assert fill("a.service.j2", {"a.service.j2": text}, values) == '"a $$b" x "y z" "/p q" 3\n'
    assert fill("a.sh.j2", {"a.sh.j2": "{{ word }}"}, {"word": Ready("a b")}) == "a b"


def read_by_systemd(word: str) -> str:
    """One word of ExecStart=, read after systemd.service(5) and systemd.syntax(7)."""
    quoted = re.fullmatch(r'"(.*)"', word, re.DOTALL)
    text = quoted[1] if quoted else word
    assert "\n" not in text
    assert quoted or not re.search(r"[\s\"'\\;%$]", text)
    text = re.sub(r'\\(x[0-9a-f]{2}|["\\])', lambda m: unescape(m[1]), text)
    assert not re.search(r"(?<!%)(%%)*%(?!%)", text)
    return text.replace("%%", "%").replace("$$", "$")


def unescape(code: str) -> str:
    return chr(int(code[1:], 16)) if code.startswith("x") else code


@given(any_text)
def test_a_word_of_a_unit_reads_back(text: str) -> None:
    assert read_by_systemd(systemd_word(text)) == text


@pytest.mark.parametrize("text", ODD)
def test_odd_words_of_a_unit_read_back(text: str) -> None:
    assert read_by_systemd(systemd_word(text)) == text


def test_what_a_unit_cannot_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="NUL"):
        systemd_word("a\0b")
    for path in ("/a\nb", "/a ", "/a\\", "/a\0"):
        with pytest.raises(ValueError, match="cannot hold this path"):
            systemd_path(PurePosixPath(path))
    assert systemd_path(PurePosixPath("/a b%'")) == "/a b%%'"


DUMP = "import json, sys; json.dump(sys.argv[1:], open(sys.argv[1], 'w'))"


@pytest.mark.hosts
def test_the_real_systemd_reads_the_words_back(gpu01: TestHost) -> None:
    log, out = PurePosixPath("/root/log 50% it's"), "/root/words 50%.json"
    words = " ".join(systemd_word(word) for word in ("/usr/bin/python3", "-c", DUMP, out, *ODD))
    unit = f"[Service]\nType=oneshot\nExecStart={words}\nStandardError=append:{systemd_path(log)}\n"
    place = "/run/systemd/system/words.service"
    put = f"cat >{place} <<'EOF'\n{unit}EOF\nsystemctl daemon-reload && systemctl start words"
    done = fleet.ssh(gpu01, put)
    assert (done.returncode, done.stderr) == (0, "")
    read = fleet.ssh(gpu01, f"cat '{out}'; rm {place}; systemctl daemon-reload")
    assert json.loads(read.stdout) == [out, *ODD]
    assert fleet.ssh(gpu01, 'ls "/root/log 50% it\'s"').returncode == 0
