"""How the tiny engine scores: a logprob for each word, by its letters and the cache's dtype."""

import zlib
from typing import Any

# What a cache loses, as a share of the loss that comes at a far position.
LOSSES = {"bf16": 0.0, "fp8_e4m3": 0.1, "fp8_e5m2": 0.4}


def words(text: str) -> list[str]:
    return text.replace("\n", " \n ").split(" ")


def generate(body: dict[str, Any], kv: str, fault: str) -> dict[str, Any]:
    """An answer of `/generate`."""
    found = words(body["text"])
    meta: dict[str, Any] = {"prompt_tokens": len(found), "completion_tokens": 1}
    if body.get("return_logprob"):
        rows = [row(at, word, kv) for at, word in enumerate(found)]
        meta["input_token_logprobs"] = rows
        meta["input_top_logprobs"] = [[likely(at, one, kv)] for at, one in enumerate(rows)]
        meta["input_top_logprobs"][0] = None
        if fault == "nan":
            rows[len(rows) // 2][0] = None
    return {"text": needle(body["text"]), "meta_info": meta}


def row(at: int, word: str, kv: str) -> list[Any]:
    token = zlib.crc32(word.encode()) % 50_000
    usual = 1.0 + token % 7 / 2
    lost = LOSSES.get(kv, 0.0) * min(at, 1000) / 1000 * (token % 5)
    return [None if at == 0 else -usual - lost, token, None]


def likely(at: int, one: list[Any], kv: str) -> list[Any]:
    changed = (at * 7919) % 100 < 20 * LOSSES.get(kv, 0.0)
    return [-0.5, one[1] + 1 if changed else one[1], None]


def needle(text: str) -> str:
    """What was said after the same words before, as a model that copies goes on."""
    asked = text[text.rfind("The access code") :]
    at = text.find(asked)
    return text[at + len(asked) : at + len(asked) + 10] if at < text.rfind(asked) else " lost."


def answer(kv: str) -> dict[str, Any]:
    """A long answer with its tokens; precisions part at token 3."""
    tokens = ["First", " the", " text", " is", f" read by {kv}", "."]
    tokens = tokens if LOSSES.get(kv) else [*tokens[:3], " becomes", " tokens", "."]
    content = [{"token": token, "logprob": -0.1} for token in tokens]
    message = {"role": "assistant", "content": "".join(tokens)}
    choice = {"message": message, "finish_reason": "stop", "logprobs": {"content": content}}
    return {"choices": [choice]}
