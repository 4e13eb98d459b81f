"""Compilers, tools and CUDA toolkits."""

import re
from pathlib import Path, PurePosixPath

import pytest

from firstlight.hosts.tools import SOUGHT, Cuda, Tool, nvcc_version, read_cudas, tool_version
from tests.hosts_facts.wire import answers, plain

BUNDLE = '{ "cuda" : { "name" : "CUDA SDK", "version" : "13.0.2" }, "x": {"version": "9"} }'


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("cc (Debian 12.2.0-14+deb12u1) 12.2.0", "12.2.0"),
        ("gcc (Ubuntu 9.4.0-1ubuntu1~20.04.1) 9.4.0", "9.4.0"),
        ("gcc (GCC) 11.5.0 20240719 (Red Hat 11.5.0-2)", "11.5.0"),
        ("x86_64-conda-linux-gnu-c++ (conda-forge gcc 14.1.0-1) 13.3.0", "13.3.0"),
        ("Ubuntu clang version 18.1.3 (1ubuntu1)", "18.1.3"),
        ("cmake version 3.25.1", "3.25.1"),
        ("1.11.1.git.kitware.jobserver-1", "1.11.1"),
        ("rsync  version 3.2.7  protocol version 31", "3.2.7"),
        ("curl 7.88.1 (x86_64-pc-linux-gnu) libcurl/7.88.1 OpenSSL/3.0.19", "7.88.1"),
        ("uv 0.9.1 (abcdef 2025-10-10)", "0.9.1"),
        ("tool (1.2.3)", "1.2.3"),
        ("", None),
    ],
)
def test_versions_of_tools(line: str, version: str | None) -> None:
    assert tool_version(line) == version


def test_what_is_sought_is_what_the_script_looks_for() -> None:
    script = (Path(__file__).parents[2] / "firstlight/remote/facts.sh").read_text()
    (names,) = re.findall(r"for name in (cc .*); do", script)
    assert frozenset(names.split()) == SOUGHT


def test_tools_by_name() -> None:
    found = plain(tools="git\t/usr/bin/git\tgit version 2.39.5\ncmake\t/x/cmake\t\nnoise")
    assert found.tool("git") == Tool("git", PurePosixPath("/usr/bin/git"), "2.39.5")
    assert found.tool("cmake") == Tool("cmake", PurePosixPath("/x/cmake"), None)
    assert found.tool("ninja") is None and len(found.tools) == 2


@pytest.mark.parametrize(
    ("file", "version"), [("nvcc_13.1.txt", "13.1.115"), ("nvcc_13.2.txt", "13.2.78")]
)
def test_recorded_nvcc(shared: Path, file: str, version: str) -> None:
    text = (shared / "data/host-facts" / file).read_text()
    assert nvcc_version(text) == version
    line = f"/usr/local/cuda\t/usr/local/cuda-13\t{' '.join(text.split())}\t"
    (cuda,) = read_cudas(answers(toolkits=line))
    assert cuda.version == version


def test_each_toolkit_once_the_preferred_first() -> None:
    nvcc = "release {0}, V{0}.88"
    lines = [
        f"/usr/local/cuda\t/usr/local/cuda-13.0\t{nvcc.format('13.0')}\t{BUNDLE}",
        f"/usr/local/cuda-12.8\t/usr/local/cuda-12.8\t{nvcc.format('12.8')}\t",
        f"/usr/local/cuda-13.0\t/usr/local/cuda-13.0\t{nvcc.format('13.0')}\t{BUNDLE}",
        f"/opt/cuda\t/opt/cuda\t\t{BUNDLE}",
    ]
    place = PurePosixPath
    assert read_cudas(answers(toolkits="\n".join(lines))) == (
        Cuda(place("/usr/local/cuda"), place("/usr/local/cuda-13.0"), "13.0.88", "13.0.2"),
        Cuda(place("/usr/local/cuda-12.8"), place("/usr/local/cuda-12.8"), "12.8.88", None),
        Cuda(place("/opt/cuda"), place("/opt/cuda"), None, "13.0.2"),
    )
