"""The accuracy room: what a checkpoint's files declare about quantisation, cache included.

Two files may say it, and they may not agree. Which one the engine reads is the order of
`get_quant_config`: `quantization_config` of config.json, that of its text part,
`compression_config`, and hf_quant_config.json only where none of these is. What a version of the
engine makes of each form is not decided here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from firstlight.accuracy.values import Object, a_number, a_text, an_object, words

CONFIG, MODELOPT = "config.json", "hf_quant_config.json"

Family = Literal[
    "modelopt_fp4",
    "modelopt_fp8",
    "modelopt_mixed",
    "modelopt_mxfp8",
    "minimax_m3_nvfp4",
    "fp8",
    "compressed-tensors",
    "quark",
    "other",
]
KvForm = Literal["nested-algo", "flat-scheme", "flat-name", "flat-algo"]

_CT_FORMATS: Mapping[str, str] = {
    "nvfp4-pack-quantized": "NVFP4",
    "mxfp4-pack-quantized": "MXFP4",
    "mxfp8-quantized": "MXFP8",
    "float-quantized": "FP8",
    "naive-quantized": "FP8",
    "int-quantized": "INT8",
    "pack-quantized": "INT4",
}
_UNTOUCHED = ("exclude_modules", "ignore", "modules_to_not_convert")


@dataclass(frozen=True)
class KvStatement:
    """One statement about the cache.

    `form` is how it is said: `nested-algo` (`quantization.kv_cache_quant_algo`), `flat-scheme`
    (`kv_cache_scheme` is an object), `flat-name` (it is a text), `flat-algo`
    (`kv_cache_quant_algo` beside the weights' algorithm). `says` is FP8, NVFP4, INT8 or what is
    written, "" for null. `per_tensor` (schemes alone): one static symmetric scale a tensor.
    """

    form: KvForm
    key: str
    says: str
    per_tensor: bool | None = None


@dataclass(frozen=True)
class Statement:
    """What one block of one file says. `algo` is NVFP4, FP8, MXFP8, MXFP4, MIXED_PRECISION or
    what is written; `kv` are its statements about the cache, the one that the engine prefers
    first; `untouched` are the modules that are left as they were; `flat` is False where ModelOpt's
    block has a part `quantization`. `incomplete`: of mixed precision, without the list of layers
    or without a word on the cache."""

    file: str
    key: str
    family: Family
    method: str
    algo: str
    kv: tuple[KvStatement, ...]
    untouched: tuple[str, ...]
    flat: bool
    incomplete: bool

    @property
    def kv_says(self) -> str:
        """What it says of the cache in one word, "" for nothing."""
        return next((one.says for one in self.kv if one.says not in ("", "AUTO", "NONE")), "")

    @property
    def place(self) -> str:
        """The file, and the key in it."""
        return f"{self.file}: {self.key}" if self.key else self.file


@dataclass(frozen=True)
class Quantisation:
    """All statements; `used` is the one that the engine reads, None for a model as it was
    trained. `disagreements` are lines for a person. `instead`: what versions from 0.5.16 on read
    in its place, because it is incomplete (0.5.23 weight_utils.py:284)."""

    statements: tuple[Statement, ...]
    used: Statement | None
    disagreements: tuple[str, ...]
    instead: Statement | None = None


def quantisation(documents: Mapping[str, Object]) -> Quantisation:
    """What the files declare, in the order in which the engine looks for it."""
    found = tuple(_statements(documents))
    used = found[0] if found else None
    lines = tuple(line for other in found[1:] for line in _differences(found[0], other))
    file = next((one for one in found if one.file == MODELOPT), None)
    instead = file if used and used.incomplete and file is not used else None
    return Quantisation(found, used, lines, instead)


def _statements(documents: Mapping[str, Object]) -> Iterator[Statement]:
    config = documents.get(CONFIG, {})
    # Of the parts the engine looks into this one alone (0.5.23 checkpoint_quantization.py:60).
    text = an_object(config.get("text_config"))
    blocks = (
        ("quantization_config", config.get("quantization_config")),
        ("text_config.quantization_config", text.get("quantization_config")),
        ("compression_config", config.get("compression_config")),
    )
    for key, block in blocks:
        if an_object(block):
            yield statement(CONFIG, key, an_object(block))
    if an_object(documents.get(MODELOPT)):
        yield statement(MODELOPT, "", documents[MODELOPT])


def statement(file: str, key: str, block: Object) -> Statement:
    """One block, in whichever form it is written."""
    # The engine takes an algorithm beside it for the whole block (0.5.23 modelopt_quant.py:1616).
    nested = an_object(block.get("quantization")) if block.get("quant_algo") is None else {}
    inner = nested or block
    method = a_text(block.get("quant_method")).lower()
    producer = a_text(an_object(block.get("producer")).get("name")).lower()
    # A block that names an algorithm and no method is ModelOpt's (0.5.9 model_config.py:653).
    if file == MODELOPT or producer == "modelopt" or block.get("quant_algo") is not None:
        method = method or "modelopt"
    algo = _algo(method, inner)
    untouched = next((words(inner[k]) for k in _UNTOUCHED if words(inner.get(k))), ())
    family = _family(method, algo)
    kv = tuple(_kv(inner, key, bool(nested)))
    if family == "modelopt_mxfp8":
        # Here the name comes before the scheme (0.5.23 configs/model_config.py:1875).
        kv = kv[::-1]
    return Statement(
        file=file,
        key=key,
        family=family,
        method=method,
        algo=algo,
        kv=kv,
        untouched=untouched,
        flat=not nested,
        incomplete=family == "modelopt_mixed" and ("quantized_layers" not in inner or not kv),
    )


def _algo(method: str, block: Object) -> str:
    written = a_text(block.get("quant_algo")).upper()
    if written:
        return written
    if method == "compressed-tensors":
        form = a_text(block.get("format"))
        return _CT_FORMATS.get(form, form.upper())
    if method == "mxfp8" and a_text(block.get("moe_quant_algo")).upper() == "NVFP4":
        return "NVFP4"
    if method == "fp8" and block.get("weight_block_size") == [1, 32]:
        return "MXFP8"
    return method.upper()


def _family(method: str, algo: str) -> Family:
    if method == "compressed-tensors":
        return "compressed-tensors"
    if method.startswith("modelopt"):
        if "MIXED" in algo:
            return "modelopt_mixed"
        if "FP4" in algo:
            return "modelopt_fp4"
        if algo == "MXFP8":
            return "modelopt_mxfp8"
        return "modelopt_fp8" if "FP8" in algo else "other"
    if method == "minimax_m3_nvfp4" or (method == "mxfp8" and algo == "NVFP4"):
        # MXFP8 that names experts of NVFP4 (0.5.23 arg_groups/model_overrides/minimax_m3.py:23).
        return "minimax_m3_nvfp4"
    return "fp8" if method in ("fp8", "mxfp8") else "quark" if method == "quark" else "other"


def _kv(block: Object, key: str, nested: bool) -> Iterator[KvStatement]:
    """Statements about the cache: a scheme comes before a name."""
    path = ".".join(filter(None, (key, "quantization" if nested else "")))

    def at(name: str) -> str:
        return f"{path}.{name}" if path else name

    if "kv_cache_scheme" in block:
        scheme = block["kv_cache_scheme"]
        if isinstance(scheme, Mapping):
            says = _scheme(scheme)
            yield KvStatement("flat-scheme", at("kv_cache_scheme"), says, _per_tensor(scheme))
        else:
            yield KvStatement("flat-name", at("kv_cache_scheme"), _name(scheme))
    if "kv_cache_quant_algo" in block:
        form: KvForm = "nested-algo" if nested else "flat-algo"
        # No other spelling is FP8 here, and a word that is none still makes room for scales.
        said = a_text(block["kv_cache_quant_algo"]).upper()
        yield KvStatement(form, at("kv_cache_quant_algo"), said)


def _name(value: object) -> str:
    name = a_text(value).upper()
    return {"FLOAT8": "FP8", "FP4": "NVFP4", "FLOAT4": "NVFP4"}.get(name, name)


def _scheme(scheme: Object) -> str:
    kind, bits = a_text(scheme.get("type")), a_number(scheme.get("num_bits"))
    known = {"float 8": "FP8", "float 4": "NVFP4", "int 8": "INT8"}
    whole = int(bits) if isinstance(bits, float) and bits.is_integer() else bits
    written = f"{kind or 'unknown'} {whole}"
    return known.get(written, written)


def _per_tensor(scheme: Object) -> bool:
    """As the engine asks for it, which has no default of the strategy
    (`is_supported_scheme`, 0.5.23 compressed_tensors.py:1276)."""
    symmetric = bool(scheme.get("symmetric", True))
    return scheme.get("strategy") == "tensor" and symmetric and not scheme.get("dynamic")


def _differences(used: Statement, other: Statement) -> Iterator[str]:
    tail = f"the engine reads {used.place}"
    if used.algo != other.algo and used.algo and other.algo:
        yield f"{used.place} says {used.algo}, {other.place} says {other.algo}; {tail}"
    if used.kv_says != other.kv_says:
        ours, theirs = used.kv_says or "nothing", other.kv_says or "nothing"
        yield f"{used.place} says {ours} of the KV cache, {other.place} {theirs}; {tail}"
