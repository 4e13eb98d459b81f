"""Marks in a stream: found in pieces of any size, with any noise around them."""

from hypothesis import given
from hypothesis import strategies as st

from firstlight.core.errors import HostError
from firstlight.effects.frame import Answer, Stream

TOKEN = "0123456789abcdef"
MARK = TOKEN.encode()


@given(st.binary(), st.binary(), st.binary(), st.integers(1, 40))
def test_what_lies_between_the_marks_is_kept(
    before: bytes, body: bytes, after: bytes, step: int
) -> None:
    stream = Stream(TOKEN)
    data = before + MARK + b":41\n" + body + MARK + b":7\n" + after
    for start in range(0, len(data), step):
        stream.feed(data[start : start + step])
    assert stream.started and stream.ended
    assert stream.body == body
    assert (stream.note(0), stream.note(1)) == ("41", "7")
    assert stream.noise == before.decode("utf-8", "replace").strip()


def test_a_stream_without_its_last_mark_keeps_all_that_came() -> None:
    stream = Stream(TOKEN)
    stream.feed(b"hello\n" + MARK + b":41\nhalf a li")
    assert stream.body == b"half a li"
    assert not stream.ended


def test_a_shell_that_never_started_bash_is_quoted() -> None:
    answer = Answer(TOKEN)
    answer.out.feed(b"This account is currently not available.\n")
    answer.status = 1
    try:
        answer.result("gpu01")
    except HostError as error:
        assert "This account is currently not available." in str(error)
        assert "exit status 1" in str(error)
    else:
        raise AssertionError("no error")
