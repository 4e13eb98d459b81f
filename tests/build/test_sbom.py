"""The bill of materials of a release: valid, whole, and the same text each time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from firstlight.build.order import manifest_of, render_manifest
from firstlight.build.sbom import render_sbom
from tests.build.small import order

MANIFEST: dict[str, Any] = json.loads(render_manifest(manifest_of(order())))
SOURCE = MANIFEST["components"][0]["source"]
RECEIPT: dict[str, Any] = {
    "name": "sglang",
    "version": "0.5.23+firstlight.cpu",
    "file": "sglang-0.5.23+firstlight.cpu-cp311-cp311-linux_x86_64.whl",
    "sha256": "9a" * 32,
    "source": {"file": SOURCE["file"], "sha256": SOURCE["sha256"]},
    "patches": [
        {"file": "0001-start.patch", "sha256": "e1" * 32, "hunks": 1, "state": "applied"},
        {"file": "0002-extra.patch", "sha256": "e2" * 32, "hunks": 1, "state": "already there"},
    ],
    "files_changed": ["sglang/a.py"],
}


def sbom(
    receipt: Mapping[str, Any] = RECEIPT, at: int | None = None, **parts: Any
) -> dict[str, Any]:
    """A bill of materials that the schema of CycloneDX accepts."""
    text = render_sbom({**MANIFEST, **parts}, [receipt], at)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    data: dict[str, Any] = json.loads(text)
    return data


def component(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    (found,) = (c for c in data["components"] if c["name"] == name)
    assert isinstance(found, dict)
    return found


def properties(data: Mapping[str, Any]) -> dict[str, str]:
    return {p["name"].removeprefix("firstlight:"): p["value"] for p in data["properties"]}


def test_every_wheel_is_in_it_with_version_digest_and_purl() -> None:
    data = sbom()
    wheels = [(w["name"], w["version"], w["sha256"]) for w in MANIFEST["wheels"]]
    wheels += [("sglang", RECEIPT["version"], RECEIPT["sha256"])]
    found = [(c["name"], c["version"], c["hashes"][0]["content"]) for c in data["components"]]
    assert sorted(found) == sorted(wheels)
    torch = component(data, "torch")
    assert torch["purl"].startswith("pkg:pypi/torch@2.13.0%2Bcpu?file_name=torch-2.13.0")
    assert properties(torch)["index"] == "torch-cpu"


def test_the_release_depends_on_all_of_them() -> None:
    data = sbom()
    release = data["metadata"]["component"]
    assert release["name"] == MANIFEST["release"]
    assert properties(release)["env:SGLANG_USE_CPU_ENGINE"] == "1"
    (whole,) = (d for d in data["dependencies"] if d["ref"] == release["bom-ref"])
    assert sorted(whole["dependsOn"]) == sorted(c["bom-ref"] for c in data["components"])


def test_what_was_patched_tells_its_source_and_the_patches_that_went_in() -> None:
    made = component(sbom(), "sglang")
    (source,) = made["pedigree"]["ancestors"]
    assert source["hashes"][0]["content"] == SOURCE["sha256"]
    assert source["purl"].startswith("pkg:pypi/sglang@0.5.23?file_name=")
    urls = [patch["diff"]["url"] for patch in made["pedigree"]["patches"]]
    assert urls == ["patches/sglang/0001-start.patch"]
    told = properties(made)
    assert told["patch:sglang/0002-extra.patch"] == "e2" * 32
    assert told["key"] == MANIFEST["components"][0]["key"]


def test_what_was_compiled_tells_its_sources_and_what_compiled_it() -> None:
    own = {"name": "sglang", "kind": "git", "file": "sglang.tar", "sha256": "ac" * 32}
    own |= {"url": "https://github.com/o/k", "commit": "c0" * 20, "tree": "c1" * 20}
    other = {"name": "cutlass", "kind": "archive", "file": "c.tar.gz", "sha256": "ad" * 32}
    part: dict[str, Any] = {"name": "sglang", "version": "0.5.23", "key": "a" * 12}
    part |= {"archives": [own, other | {"url": "https://example.org/c.tar.gz"}]}
    toolkit = {"name": "cuda-toolkit", "version": "13.0", "key": "b" * 12}
    nvcc = {"nvcc": {"version": "Build cuda_13.0.r13.0", "sha256 of bin/nvcc": "ab" * 32}}
    receipt = {k: v for k, v in RECEIPT.items() if k != "source"} | {"compilers": nvcc}
    data = sbom(receipt, components=[toolkit, part])
    made = component(data, "sglang")
    assert made["pedigree"]["commits"] == [{"uid": "c0" * 20, "url": "https://github.com/o/k"}]
    found = {a["name"]: a["hashes"][0]["content"] for a in made["pedigree"]["ancestors"]}
    assert found == {"sglang": "ac" * 32, "cutlass": "ad" * 32}
    assert {r["type"] for r in made["externalReferences"]} == {"vcs", "distribution"}
    assert properties(made)["compilers:nvcc:sha256 of bin/nvcc"] == "ab" * 32
    # The toolkit compiled it and is not installed: it has a key and no wheel.
    with_it = component(data, "cuda-toolkit")
    assert (with_it["scope"], properties(with_it)) == ("excluded", {"key": "b" * 12})


def test_the_same_release_is_the_same_text_and_another_has_another_number() -> None:
    texts = {render_sbom(MANIFEST, [dict(reversed(RECEIPT.items()))]) for _ in range(3)}
    assert texts == {render_sbom(MANIFEST, [RECEIPT])}
    data = sbom()
    assert "timestamp" not in data["metadata"]
    other = sbom({**RECEIPT, "sha256": "9b" * 32})
    assert other["serialNumber"] != data["serialNumber"]


def test_a_time_is_told_when_it_is_given() -> None:
    assert sbom(at=1_700_000_000)["metadata"]["timestamp"] == "2023-11-14T22:13:20+00:00"


@pytest.mark.parametrize("receipts", [[], [{"name": "other"}], [{"version": "1"}]])
def test_a_component_without_its_receipt_is_an_error(receipts: list[dict[str, Any]]) -> None:
    with pytest.raises((KeyError, ValueError)):
        render_sbom(MANIFEST, receipts)
