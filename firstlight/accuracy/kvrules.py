"""The accuracy room: how each engine version sizes its pools (data; facts §3 cites the sources).

The sizing of SGLang was read in every minor release from 0.4.0 to 0.5.23, from its wheels; the
table has those in which it changed. Between two of them the older one's rules hold. Line numbers
are of `model_runner_kv_cache_mixin.py` up to 0.5.15 (`model_runner.py` up to 0.5.6), from then on
of `kv_cache_configurator.py`, and `pool_configurator.py` is said.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from firstlight.core.errors import FirstlightError

Version = tuple[int, int, int]
_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")

# What a build from a tree without tags calls itself; it counts as the newest that was read.
NEWEST, _NAMELESS = "0.0.0", (0, 0, 0)


@dataclass(frozen=True)
class Rules:
    """What one version does.

    `state`: as many slots as requests, whatever the memory (`requests`); a share of it, the states
    between draft tokens in it (`share`); those are taken off `first` for all requests, in 0.5.7
    for those of every rank and only before a share is (`shared_first`), or solved `joint`ly with
    the slots, or so and the spare slot is paid for (`padded`). `slots` are taken
    where nobody says how many requests, and no share is asked for. `draft`: its rows lie `outside`
    the budget, or are priced when its `path` is given, or are `added` also without one; `headroom`:
    they lie outside and the pool grows beyond its budget by the tokens that are drafted. `dflash`
    the same for DFLASH drafts (`scaled`: by layers, as if they were the target's). `after_draft`:
    the free memory that counts is measured after the draft has loaded. `two_steps`: two pools are
    solved from a token count that is rounded already; `pools_draft`: they price the draft;
    `pools_capped`: without a radix cache the sliding pool holds the requests asked for and no more;
    `swa_floor`: a sliding pool that holds no request is refused. `index_priced`: index keys of DSA
    are priced at all; `dsa_scaled`: FP8 rows of DSA are priced with their scales; `index_npu`: the
    16-bit index of an NPU is priced as it is; `index_shared`: layers that share an index keep none.
    `fp4_workspace`: one layer of FP8 rows to unpack into. `stage_states`: with pipeline stages the
    largest stage's states are charged, else all. `npu_whole`: on an NPU a model with states keeps
    rows in every layer, and pays for those with attention. `reserve_mib` for the embeddings of a
    multimodal model. `spec_tracks_once`: with speculation an `extra_buffer` takes one slot more,
    not two.
    """

    version: str
    state: Literal["requests", "share", "shared_first", "first", "joint", "padded"]
    slots: int
    draft: Literal["outside", "path", "added"]
    headroom: bool
    dflash: Literal["outside", "scaled", "added"]
    after_draft: bool
    two_steps: bool
    pools_draft: bool
    pools_capped: bool
    index_priced: bool
    dsa_scaled: bool
    index_npu: bool
    npu_whole: bool
    index_shared: bool
    fp4_workspace: bool
    swa_floor: bool
    stage_states: bool
    reserve_mib: int
    spec_tracks_once: bool
    fp4: tuple[str, ...]
    source: str


_040 = Rules(
    version="0.4.0",
    state="requests",
    slots=512,
    draft="outside",
    headroom=False,
    dflash="outside",
    after_draft=False,
    two_steps=True,
    pools_draft=False,
    pools_capped=False,
    index_priced=False,
    dsa_scaled=False,
    index_npu=False,
    npu_whole=True,
    index_shared=False,
    fp4_workspace=False,
    swa_floor=False,
    stage_states=False,
    reserve_mib=0,
    spec_tracks_once=True,
    fp4=("fp4_e2m1",),
    source="0.4.3 profile_max_num_token, 0.5.2:1097-1133",
)
_044 = replace(
    _040,
    version="0.4.4",
    headroom=True,
    source="0.4.4:680-697, 0.5.3:1257-1298 and :1444-1465",
)
_054 = replace(
    _044,
    version="0.5.4",
    state="share",
    index_priced=True,
    source="0.5.4 profile_max_num_token, handle_max_mamba_cache; the headroom :1670-1688",
)
_057 = replace(
    _054,
    version="0.5.7",
    state="shared_first",
    headroom=False,
    source="0.5.7 handle_max_mamba_cache, init_memory_pool",
)
_058 = replace(_057, version="0.5.8", state="first", source="0.5.8 handle_max_mamba_cache")
_059 = replace(_058, version="0.5.9", slots=0, source="0.5.9:54-415")
_0510 = replace(
    _059,
    version="0.5.10",
    npu_whole=False,
    spec_tracks_once=False,
    source="0.5.10 _calculate_mamba_ratio, :478",
)
_0511 = replace(
    _0510,
    version="0.5.11",
    dflash="scaled",
    two_steps=False,
    source="0.5.11 pool_configurator.py:84-290",
)
_0513 = replace(_0511, version="0.5.13", state="joint", source="0.5.13 handle_max_mamba_cache")
_0514 = replace(
    _0513,
    version="0.5.14",
    draft="path",
    after_draft=True,
    pools_capped=True,
    source="0.5.14 pool_configurator.py:127-145 and :339-436",
)
_0515 = replace(
    _0514, version="0.5.15", pools_draft=True, source="0.5.15 pool_configurator.py:319-350"
)
_0516 = replace(
    _0515,
    version="0.5.16",
    fp4_workspace=True,
    swa_floor=True,
    fp4=("nvfp4", "fp4_mx_block16"),
    source="0.5.16:1527-1810, pool_configurator.py:114-460",
)
_0517 = replace(
    _0516,
    version="0.5.17",
    state="padded",
    stage_states=True,
    dsa_scaled=True,
    source="0.5.17 _handle_max_mamba_cache, pool_configurator.py:196-210",
)
_0518 = replace(
    _0517,
    version="0.5.18",
    dflash="added",
    index_shared=True,
    reserve_mib=100,
    source="0.5.18 _profile_available_bytes, pool_configurator.py:178-235 and :346-410",
)
_0520 = replace(
    _0518,
    version="0.5.20",
    draft="added",
    index_npu=True,
    source="0.5.20:2148-2540, pool_configurator.py:197-760, spec_aux_hidden_state.py:70-106",
)
_0523 = replace(_0520, version="0.5.23", source="0.5.23:2990-3409, pool_configurator.py:219-920")
READ: tuple[Rules, ...] = (
    *(_040, _044, _054, _057, _058, _059, _0510, _0511, _0513, _0514, _0515, _0516, _0517, _0518),
    *(_0520, _0523),
)


def parsed(version: str) -> Version:
    """The three numbers a version begins with; FirstlightError when there are none."""
    found = _VERSION.match(version.strip())
    if not found:
        raise FirstlightError(
            f"{version!r} is no engine version",
            where="KV capacity",
            remedy="give three numbers, like 0.5.23",
        )
    return int(found[1]), int(found[2]), int(found[3])


def rules_for(version: str) -> tuple[Rules, str]:
    """The rules of a version, and a note where that version itself was not read."""
    wanted, newest = parsed(version), READ[-1].version
    if wanted == _NAMELESS:
        return READ[-1], f"{version} names no release; the rules of {newest} are taken"
    older = [rules for rules in READ if parsed(rules.version) <= wanted]
    if not older:
        return READ[0], f"{version} was not read; the rules of {READ[0].version} are taken"
    rules = older[-1]
    if rules is READ[-1] and parsed(rules.version) != wanted:
        return rules, f"{version} is newer than what was read; the rules of {newest} are taken"
    return rules, ""


def since(version: str, first: str) -> bool:
    """Whether a version has what came with `first`; "" came always."""
    return not first or parsed(version) == _NAMELESS or parsed(version) >= parsed(first)
