"""The HTTP door: the only file that imports requests. One call, one request, one reply.

A link that fails is a reply too (status 0), because waiting for a server is made of such replies.
"""

from __future__ import annotations

import json as json_
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import requests

Trouble = Literal["", "refused", "timeout", "broken"]


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
