"""The HTTP door: the only file that imports requests. One call, one request, one reply.

A link that fails is a reply too (status 0), because waiting for a server is made of such replies.
"""

from __future__ import annotations

import json as json_
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import requests

Trouble = Literal["", "refused", "timeout", "broken"]


_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Piece:
    """A part of a file. `status` is 206, or 200 from a server that knows no ranges (then it is
    the file's begin); 0 is no HTTP answer. `next` is where a list of several pages goes on."""

    status: int
    data: bytes = b""
    next: str = ""
    error: str = ""


@dataclass(frozen=True)
class Reply:
    """What a request came to. `status` 0 means no HTTP answer, and `trouble` why; `json` is None
    when the text is no JSON; `seconds` is the wall time of the whole exchange."""

    status: int
    text: str = ""
    json: Any = None
    seconds: float = 0.0
    trouble: Trouble = ""
    error: str = field(default="")

    @property
    def ok(self) -> bool:
        """True for status 200 alone."""
        return self.status == 200


def get(url: str, timeout_s: float = 5.0, headers: Mapping[str, str] | None = None) -> Reply:
    """GET, once; no proxy, no redirect, no retry. `timeout_s` bounds each wait for the server."""
    return _timed(lambda s: s.get(url, timeout=timeout_s, headers=headers, allow_redirects=False))


def post_json(
    url: str, body: object, timeout_s: float = 60.0, headers: Mapping[str, str] | None = None
) -> Reply:
    """POST a value as JSON, once; otherwise as `get`."""
    return _timed(
        lambda s: s.post(url, json=body, timeout=timeout_s, headers=headers, allow_redirects=False)
    )


def get_piece(
    url: str,
    start: int,
    count: int,
    timeout_s: float = 30.0,
    headers: Mapping[str, str] | None = None,
) -> Piece:
    """GET at most `count` bytes of a file from `start` on, once.

    Redirects are followed, for a hub's files lie with others; a login is not sent along there.
    Nothing more than `count` bytes is read, whatever the server sends.
    """
    import requests

    wanted = {"Range": f"bytes={start}-{start + count - 1}", "Accept-Encoding": "identity"}
    with requests.Session() as session:
        session.trust_env = urlsplit(url).hostname not in _LOOPBACK
        try:
            with session.get(
                url, timeout=timeout_s, headers={**(headers or {}), **wanted}, stream=True
            ) as answer:
                data = b""
                if answer.status_code == 206 or (answer.status_code == 200 and start == 0):
                    data = _at_most(answer.iter_content(1 << 16), count)
                link = answer.links.get("next", {}).get("url", "")
                return Piece(answer.status_code, data, link)
        except requests.RequestException as error:
            return Piece(0, error=_words(error))


def _at_most(blocks: Iterable[bytes], count: int) -> bytes:
    found = bytearray()
    for block in blocks:
        found += block
        if len(found) >= count:
            break
    return bytes(found[:count])


def _timed(ask: Callable[[requests.Session], requests.Response]) -> Reply:
    # Imported here: a verb that asks no server must not pay for it.
    import requests

    begin = time.monotonic()
    with requests.Session() as session:
        # No proxy and no .netrc of the environment: every server is reached over loopback.
        session.trust_env = False
        try:
            response = ask(session)
        except requests.RequestException as error:
            seconds = time.monotonic() - begin
            return Reply(0, seconds=seconds, trouble=_trouble(error), error=_words(error))
        text = response.content.decode("utf-8", "replace")
        return Reply(response.status_code, text, _parsed(text), time.monotonic() - begin)


def _trouble(error: requests.RequestException) -> Trouble:
    import requests

    if isinstance(error, requests.Timeout) or "timed out" in str(error):
        return "timeout"
    return "refused" if "refused" in str(error) else "broken"


def _words(error: requests.RequestException) -> str:
    """The innermost cause in one line; the outer ones repeat the URL and name pool objects."""
    inner: BaseException = error
    while inner.__cause__ or inner.__context__:
        inner = inner.__cause__ or inner.__context__ or inner
    return " ".join(str(inner).split())[:200] or type(inner).__name__


def _parsed(text: str) -> Any:
    try:
        return json_.loads(text)
    except (ValueError, RecursionError):
        return None
