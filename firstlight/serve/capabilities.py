"""The capabilities room: what the engine of a release accepts, as its own argparse says."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from firstlight.core.errors import HostError
from firstlight.serve.profile import Profile

_BARE = {"store_true", "store_false", "store_const", "count", "optional-bool"}
_JSON_TYPES = {"loads", "json.loads", "json_list_type"}


class Flag(BaseModel):
    """One flag of the engine; facts that we do not use are passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    kind: str = "store"
    type: str | None = None
    choices: tuple[str | int | float | bool | None, ...] | None = None
    default: Any = None
    nargs: str | int | None = None
    aliases: tuple[str, ...] = ()
    deprecated: bool = False
    new_flag: str | None = None

    @property
    def is_bare(self) -> bool:
        """True when the flag stands alone."""
        action = self.kind.lower().replace("_", "")
        bare_action = re.search(r"storetrue|storeconst|booleanoptional", action)
        return self.kind in _BARE or self.nargs == 0 or bare_action is not None

    @property
    def is_repeated(self) -> bool:
        """True when the flag may be given several times."""
        return self.kind in ("append", "extend")

    @property
    def takes_several(self) -> bool:
        """True when several words may follow the flag, or the flag may be repeated."""
        is_count = isinstance(self.nargs, int) and self.nargs > 1
        return self.nargs in ("*", "+") or is_count or self.is_repeated

    @property
    def takes_json(self) -> bool:
        """True when the flag's value is read as JSON."""
        return self.type in _JSON_TYPES


class Capabilities(BaseModel):
    """The flags of one engine at one version, by their first long name."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    engine: str = "sglang"
    version: str
    flags: Mapping[str, Flag]
    abbreviations: bool = True

    @property
    def title(self) -> str:
        """The engine as messages name it."""
        return f"{self.engine} {self.version}"

    @cached_property
    def options(self) -> Mapping[str, str]:
        """Every long spelling of every flag, with the flag's first name."""
        spelled = {name: name for name in self.flags}
        for name, flag in self.flags.items():
            spelled.update({alias: name for alias in flag.aliases if alias.startswith("--")})
        return spelled

    @cached_property
    def keys(self) -> Mapping[str, str]:
        """Every spelling as a key of a profile (snake_case), with the spelling."""
        return {key_of(option): option for option in self.options}


def key_of(option: str) -> str:
    """A flag as a key of a profile: `--kv-cache-dtype` is kv_cache_dtype."""
    return option.removeprefix("--").replace("-", "_")


def read_capabilities(text: str, file: str) -> Capabilities:
    """The flags that a release wrote down; raises HostError when the file is damaged."""
    try:
        return Capabilities.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise HostError(
            f"the release's list of flags cannot be read: {place or 'text'}: {first['msg']}",
            where=file,
            remedy="the release is damaged: remove the manifest.json beside that file, and `invoke "
            "build` makes it again",
        ) from None


def engine_lines(
    profile: Profile, capabilities: Capabilities | None = None
) -> tuple[tuple[str, ...], ...]:
    """The profile's flags with their values, one tuple a flag, in the order of the file.

    With `capabilities` a list is given as the engine takes it: as JSON, as words after one flag,
    or by repeating the flag; without, as words after one flag.
    """
    lines: list[tuple[str, ...]] = []
    for key, value in profile.args.items():
        lines += _lines(key, value, capabilities)
    for word in profile.extra_args:
        if word.startswith("--") or not lines:
            lines.append((word,))
        else:
            lines[-1] = (*lines[-1], word)
    return tuple(lines)


def _lines(key: str, value: JsonValue, capabilities: Capabilities | None) -> list[tuple[str, ...]]:
    option = f"--{key.replace('_', '-')}"
    flag = Flag()
    if capabilities is not None and key in capabilities.keys:
        option = capabilities.keys[key]
        flag = capabilities.flags[capabilities.options[option]]
    if value is None or value is False:
        return []
    if value is True:
        return [(option,)]
    if isinstance(value, list) and not flag.takes_json:
        words = [word_of(item) for item in value]
        return [_one(option, word) for word in words] if flag.is_repeated else [(option, *words)]
    return [_one(option, word_of(value))]


def _one(option: str, word: str) -> tuple[str, ...]:
    """A word that begins with '-' would be read as a flag if it stood alone."""
    return (f"{option}={word}",) if word.startswith("-") else (option, word)


def word_of(value: JsonValue) -> str:
    """A value as one word: text as it is, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
