"""The accuracy room: how each engine version sizes its pools (data; facts §3 cites the sources).

Five versions of SGLang were read. A version between two of them is either neighbour: the older one
is taken and the note says so. Before 0.5.9 the rules of 0.5.9 are taken: published boots of 0.2 to
0.5.8 agree with them (benchmarks/kv_groundtruth.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from firstlight.core.errors import FirstlightError

Version = tuple[int, int, int]
_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True)
class Rules:
    """What one version does.

    `state`: speculation is taken off `first` for all requests, or solved `joint`ly with the slots,
    or so and the spare slot is paid for (`padded`). `draft`: its rows lie `outside` the budget, or
    are priced when its `path` is given, or are `added` also without one; `dflash` the same for
    DFLASH drafts (`scaled`: by layers, as if they were the target's). `after_draft`: the free
    memory that counts is measured after the draft has loaded. `two_steps`: two pools are solved
    from a token count that is rounded already; `pools_draft`: they price the draft; `swa_floor`:
    a sliding pool that holds no request is refused. `dsa_scaled`: FP8 rows of DSA are priced with
    their scales; `index_npu`: the 16-bit index of an NPU is priced as it is; `index_shared`: layers
    that share an index keep none. `fp4_workspace`: one layer of FP8 rows to unpack into.
    `stage_states`: with pipeline stages the largest stage's states are charged, else all.
    `reserve_mib` for the embeddings of a multimodal model. `spec_tracks_once`: with speculation an
    `extra_buffer` takes one slot more, not two.
    """

    version: str
    state: Literal["first", "joint", "padded"]
    draft: Literal["outside", "path", "added"]
    dflash: Literal["outside", "scaled", "added"]
    after_draft: bool
    two_steps: bool
    pools_draft: bool
    dsa_scaled: bool
    index_npu: bool
    index_shared: bool
    fp4_workspace: bool
    swa_floor: bool
    stage_states: bool
    reserve_mib: int
    spec_tracks_once: bool
    fp4: tuple[str, ...]
    source: str


_059 = Rules(
    version="0.5.9",
    state="first",
    draft="outside",
    dflash="outside",
    after_draft=False,
    two_steps=True,
    pools_draft=False,
    dsa_scaled=False,
    index_npu=False,
    index_shared=False,
    fp4_workspace=False,
    swa_floor=False,
    stage_states=False,
    reserve_mib=0,
    spec_tracks_once=True,
    fp4=("fp4_e2m1",),
    source="0.5.9 model_executor/model_runner_kv_cache_mixin.py:54-415",
)
_0512 = replace(
    _059,
    version="0.5.12",
    dflash="scaled",
    two_steps=False,
    spec_tracks_once=False,
    source="0.5.12 model_runner_kv_cache_mixin.py:62-202, pool_configurator.py:86-260",
)
_0516 = replace(
    _0512,
    version="0.5.16",
    state="joint",
    draft="path",
    after_draft=True,
    pools_draft=True,
    fp4_workspace=True,
    swa_floor=True,
    fp4=("nvfp4", "fp4_mx_block16"),
    source="0.5.16 kv_cache_configurator.py:1527-1810, pool_configurator.py:114-460",
)
_0520 = replace(
    _0516,
    version="0.5.20",
    state="padded",
    draft="added",
    dflash="added",
    dsa_scaled=True,
    index_npu=True,
    index_shared=True,
    stage_states=True,
    reserve_mib=100,
    source="0.5.20 kv_cache_configurator.py:2148-2540, pool_configurator.py:197-760",
)
_0523 = replace(
    _0520,
    version="0.5.23",
    source="0.5.23 kv_cache_configurator.py:2990-3409, pool_configurator.py:219-920",
)
READ: tuple[Rules, ...] = (_059, _0512, _0516, _0520, _0523)


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
    wanted = parsed(version)
    older = [rules for rules in READ if parsed(rules.version) <= wanted]
    newer = [rules for rules in READ if parsed(rules.version) > wanted]
    if not older:
        return READ[0], f"{version} was not read; the rules of {READ[0].version} are taken"
    rules = older[-1]
    if parsed(rules.version) == wanted:
        return rules, ""
    if newer:
        told = f"either {rules.version} or {newer[0].version}; the older one's rules are taken"
        return rules, f"{version} was not read: {told}"
    return rules, f"{version} is newer than what was read; the rules of {rules.version} are taken"


def since(version: str, first: str) -> bool:
    """Whether a version has what came with `first`; "" came always."""
    return not first or parsed(version) >= parsed(first)
