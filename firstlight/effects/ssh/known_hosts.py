"""Which host keys a person trusts: known_hosts files, read as OpenSSH reads them.

Format: sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT". Lines marked @cert-authority are passed over,
as host certificates are not offered to us.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class KnownKey:
    """One line: for which names which key is trusted, or (`revoked`) never again."""

    file: Path
    line: int
    names: str
    kind: str
    blob: bytes
    revoked: bool = False


@dataclass(frozen=True)
class Verdict:
    """What the files say of an offered key; `old` is the line that speaks against it."""

    trusted: bool
    old: KnownKey | None = None


def read(files: Iterable[Path]) -> tuple[KnownKey, ...]:
    """All keys of all files that exist; a line that cannot be read trusts nobody."""
    return tuple(
        key
        for file in files
        if file.is_file()
        for number, line in enumerate(file.read_text("utf-8", "replace").splitlines(), 1)
        if (key := _parse(file, number, line))
    )


def _parse(file: Path, number: int, line: str) -> KnownKey | None:
    words = line.split()
    marker = words.pop(0) if words and words[0].startswith("@") else ""
    if len(words) < 3 or words[0].startswith("#") or marker not in ("", "@revoked"):
        return None
    try:
        blob = base64.b64decode(words[2], validate=True)
    except ValueError:
        return None
    return KnownKey(file, number, words[0], words[1], blob, marker == "@revoked")


def name_of(address: str, port: int) -> str:
    """The name under which OpenSSH files the key of a host."""
    return address.lower() if port == 22 else f"[{address.lower()}]:{port}"


def of_host(keys: Iterable[KnownKey], name: str) -> tuple[KnownKey, ...]:
    """The lines that speak of a host."""
    return tuple(key for key in keys if _matches(key.names, name))


def _matches(names: str, name: str) -> bool:
    if names.startswith("|"):
        return _hashed(names, name)
    found = False
    for pattern in names.split(","):
        if _glob(pattern.removeprefix("!"), name):
            if pattern.startswith("!"):
                return False
            found = True
    return found


def _hashed(text: str, name: str) -> bool:
    try:
        _, version, salt, digest = text.split("|")
        key, wanted = base64.b64decode(salt), base64.b64decode(digest)
    except ValueError:
        return False
    found = hmac.new(key, name.encode(), hashlib.sha1).digest()
    return version == "1" and hmac.compare_digest(found, wanted)


def _glob(pattern: str, name: str) -> bool:
    words = {"*": ".*", "?": "."}
    text = "".join(words.get(letter) or re.escape(letter) for letter in pattern.lower())
    return re.fullmatch(text, name) is not None


def judge(keys: Iterable[KnownKey], kind: str, blob: bytes) -> Verdict:
    """Is the offered key one of the host's? A revoked one never is, whatever else is written."""
    lines = tuple(keys)
    same = [key for key in lines if key.blob == blob]
    revoked = next((key for key in same if key.revoked), None)
    if revoked:
        return Verdict(False, revoked)
    if same:
        return Verdict(True)
    others = sorted((key for key in lines if not key.revoked), key=lambda key: key.kind != kind)
    return Verdict(False, others[0] if others else None)


def fingerprint(blob: bytes) -> str:
    """A key's fingerprint as ssh-keygen shows it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
