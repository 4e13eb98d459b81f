"""Part of read_checkpoint.py: the number formats of safetensors, and small tensors as floats."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping

BITS: Mapping[str, int] = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    **dict.fromkeys(("U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0"), 8),
    **dict.fromkeys(("F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 16),
    **dict.fromkeys(("I32", "U32", "F32"), 32),
    **dict.fromkeys(("I64", "U64", "F64", "C64"), 64),
}
_STRUCT = {"F32": "f", "F64": "d", "F16": "e", "I32": "i", "I64": "q", "U8": "B", "I8": "b"}


def numbers(dtype: str, data: bytes) -> list[float] | None:
    """Little-endian numbers as floats; None for a format that no scale is kept in."""
    if code := _STRUCT.get(dtype):
        count = len(data) // struct.calcsize(code)
        return [float(one) for one in struct.unpack(f"<{count}{code}", data)]
    if dtype == "BF16":
        # The upper half of a float32.
        wide = b"".join(b"\0\0" + data[at : at + 2] for at in range(0, len(data), 2))
        return numbers("F32", wide)
    if dtype == "F8_E8M0":
        return [math.nan if one == 255 else 2.0 ** (one - 127) for one in data]
    if dtype == "F8_E4M3":
        return [_small(one, 4, 3, 0x7F) for one in data]
    if dtype == "F8_E5M2":
        # Half of a float16.
        return numbers("F16", b"".join(bytes((0, one)) for one in data))
    return None


def _small(one: int, exponent_bits: int, fraction_bits: int, nan: int) -> float:
    """A float of 8 bits that has no infinity."""
    sign = -1.0 if one & 0x80 else 1.0
    if one & 0x7F == nan:
        return math.nan
    bias = (1 << (exponent_bits - 1)) - 1
    fraction = (one & ((1 << fraction_bits) - 1)) / (1 << fraction_bits)
    exponent = (one & 0x7F) >> fraction_bits
    if exponent == 0:
        return sign * fraction * 2.0 ** (1 - bias)
    return sign * (1 + fraction) * 2.0 ** (exponent - bias)
