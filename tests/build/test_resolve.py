"""Reading what uv resolved: the best wheel of each package, and none that does not fit."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstlight.build.choose import choose
from firstlight.build.resolve import (
    get_uv,
    parse_pylock,
    resolve_requirements,
    resolve_sources,
    resolve_tools,
)
from firstlight.build.wheel import fits
from firstlight.core.errors import FirstlightError
from tests.build.small import UV, parts, stack

CHOICES = choose(stack().value, parts())


def wheel(file: str, sha256: str) -> str:
    return (
        f'{{ url = "https://files.example/ab/{file}", upload-time = 2026-01-02T03:04:05Z, '
        f'size = 7, hashes = {{ sha256 = "{sha256}" }} }}'
    )


def pylock(*packages: tuple[str, str, str, list[str]]) -> str:
    text = 'lock-version = "1.0"\ncreated-by = "uv"\n'
    for name, version, marker, files in packages:
        rows = ", ".join(wheel(file, f"{n:064x}") for n, file in enumerate(files))
        text += f'[[packages]]\nname = "{name}"\nversion = "{version}"\n'
        text += f'marker = "{marker}"\n' if marker else ""
        text += f"wheels = [{rows}]\n"
    return text


def test_the_wheel_for_this_python_and_this_glibc_is_taken() -> None:
    files = [
        "x-1.0-py3-none-any.whl",
        "x-1.0-cp312-cp312-manylinux_2_17_x86_64.whl",
        "x-1.0-cp311-cp311-manylinux_2_39_x86_64.whl",
        "x-1.0-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
        "x-1.0-cp311-cp311-manylinux_2_17_aarch64.whl",
        "x-1.0-cp311-cp311-musllinux_1_2_x86_64.whl",
        "x-1.0-cp39-abi3-manylinux_2_17_x86_64.whl",
        "x-1.0-cp311-cp311-win_amd64.whl",
    ]
    (found,) = parse_pylock(pylock(("x", "1.0", "", files)), "3.11", "x86_64", "2.34")
    assert (found.file, found.sha256, found.size) == (files[3], f"{3:064x}", 7)
    (newer,) = parse_pylock(pylock(("x", "1.0", "", files)), "3.11", "x86_64", "2.39")
    assert newer.file == files[2]
    (other,) = parse_pylock(pylock(("x", "1.0", "", files)), "3.13", "x86_64", "2.34")
    assert other.file == files[6]


def test_an_escaped_address_gives_the_plain_file_name() -> None:
    text = pylock(("x", "1.0+cpu", "", ["x-1.0%2Bcpu-py3-none-any.whl"]))
    (found,) = parse_pylock(text, "3.11", "x86_64", "2.34")
    assert found.file == "x-1.0+cpu-py3-none-any.whl"
    assert "http" not in found.model_dump_json()


def test_what_is_for_another_system_is_left_out() -> None:
    file = "x-1.0-py3-none-any.whl"
    text = pylock(
        ("a", "1.0", "sys_platform == 'win32'", [file]),
        ("x", "1.0", "platform_machine == 'x86_64' and python_version >= '3.11'", [file]),
        ("y", "1.0", "python_version < '3.11'", [file]),
    )
    assert [found.name for found in parse_pylock(text, "3.11", "x86_64", "2.34")] == ["x"]


def test_a_package_without_a_wheel_that_fits_is_told() -> None:
    text = pylock(("x", "1.0", "", ["x-1.0-cp310-cp310-manylinux_2_17_x86_64.whl"]))
    with pytest.raises(FirstlightError) as caught:
        parse_pylock(text, "3.11", "x86_64", "2.34")
    assert str(caught.value) == (
        "x 1.0 has no wheel for CPython 3.11, x86_64, glibc 2.34\n"
        "  -> pin a version that has one, or leave that Python out of the stack"
    )


@given(st.integers(5, 60), st.integers(5, 60))
def test_a_wheel_fits_every_glibc_from_its_own_on(wheels: int, hosts: int) -> None:
    file = f"x-1.0-cp311-cp311-manylinux_2_{wheels}_x86_64.whl"
    assert fits(file, "3.11", "x86_64", f"2.{hosts}") is (wheels <= hosts)


def test_the_prebuilt_is_never_asked_of_an_index() -> None:
    script = resolve_requirements("/x/uv", stack().value, CHOICES, "3.12")
    assert script.args == (
        "/x/uv",
        "3.12",
        "x86_64-manylinux_2_34",
        "einops==0.8.2\nfilelock",
        "sglang ; python_version < '3'\ntorch==2.13.0+cpu ; python_version < '3'",
        "einops==0.8.2",
    )


def test_components_and_tools_come_without_what_they_require() -> None:
    sources = resolve_sources("/x/uv", stack().value, CHOICES, "3.12")
    assert (sources.args[3], sources.args[6]) == ("sglang==0.5.23", "--no-deps")
    tools = resolve_tools("/x/uv", stack().value)
    assert (tools.args[3], tools.args[6]) == ("uv==0.13.9", "--no-deps")


def test_a_uv_that_a_lock_knows_comes_by_its_hash() -> None:
    home = PurePosixPath("/tmp/uv")
    assert get_uv("python3", home, "uv==0.13.9", None).args[2] == "uv==0.13.9"
    known = get_uv("python3", home, "uv==0.13.9", UV).args[2]
    assert known == f"uv==0.13.9 --hash=sha256:{UV.sha256}"
