"""The build room: a release's manifest and receipts as a CycloneDX 1.6 bill of materials.

The same release gives the same text: its serial number digests what it is made of, and it carries
a time only when it is given one.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from cyclonedx.model import (
    ExternalReference,
    ExternalReferenceType,
    HashAlgorithm,
    HashType,
    Property,
    XsUri,
)
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import (
    Commit,
    Component,
    ComponentScope,
    ComponentType,
    Diff,
    Patch,
    PatchClassification,
    Pedigree,
)
from cyclonedx.model.dependency import Dependency
from cyclonedx.model.tool import ToolRepository
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.utils import canonicalize_name

from firstlight.build.digest import digest

Data = Mapping[str, Any]
# What of a receipt is told as properties, whatever its builder wrote there.
_TOLD = ("key", "inputs", "compilers", "environment", "reproducible")
TOOLKIT = "cuda-toolkit"


def render_sbom(manifest: Data, receipts: Iterable[Data], at: int | None = None) -> str:
    """The bill of materials as JSON; `at` is its time in seconds since 1970, or none at all.

    `manifest` is manifest.json of a release, `receipts` are those that it keeps, in any order.
    Raises KeyError or ValueError when they are not.
    """
    made = {canonicalize_name(receipt["name"]): receipt for receipt in receipts}
    root = _release(manifest)
    components = [_published(wheel) for wheel in manifest["wheels"]]
    for part in manifest["components"]:
        receipt = made.get(canonicalize_name(part["name"]))
        components.append(_toolkit(part) if part["name"] == TOOLKIT else _made(part, receipt))
    said = digest([manifest, sorted(made.items())])
    when = datetime.fromtimestamp(at, UTC) if at is not None else None
    bom = Bom(
        serial_number=uuid.uuid5(uuid.NAMESPACE_OID, said),
        metadata=BomMetaData(component=root, timestamp=when, tools=_tools(manifest)),
        components=components,
        dependencies=[Dependency(root.bom_ref, [Dependency(c.bom_ref) for c in components])],
    )
    data = json.loads(JsonV1Dot6(bom).output_as_string())
    if when is None:
        # The library always takes the time of day when it is given none.
        del data["metadata"]["timestamp"]
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def _release(manifest: Data) -> Component:
    told = {key: manifest[key] for key in ("stack", "engine", "python", "arch", "glibc")}
    told |= {f"env:{name}": value for name, value in manifest.get("env", {}).items()}
    return Component(
        name=manifest["release"],
        type=ComponentType.APPLICATION,
        bom_ref=manifest["release"],
        properties=_properties(told),
    )


def _tools(manifest: Data) -> ToolRepository:
    tool = Component(
        name="firstlight",
        version=manifest["firstlight"],
        type=ComponentType.APPLICATION,
        bom_ref="firstlight",
    )
    return ToolRepository(components=[tool])


def _published(wheel: Data) -> Component:
    told = {"file": wheel["file"]} | ({"index": wheel["index"]} if wheel.get("index") else {})
    return Component(
        name=wheel["name"],
        version=wheel["version"],
        type=ComponentType.LIBRARY,
        bom_ref=_ref(wheel),
        purl=_purl(wheel),
        hashes=[_sha256(wheel["sha256"])],
        properties=_properties(told),
    )


def _toolkit(part: Data) -> Component:
    """What a release was compiled with, and is not installed in it."""
    return Component(
        name=part["name"],
        version=part["version"],
        type=ComponentType.APPLICATION,
        scope=ComponentScope.EXCLUDED,
        bom_ref=f"{part['name']}:{part['key']}",
        properties=_properties({"key": part["key"]}),
    )


def _made(part: Data, receipt: Data | None) -> Component:
    """What was made on a host: its wheel, with what it was made from as its pedigree."""
    if receipt is None:
        raise ValueError(f"there is no receipt of {part['name']}")
    told = {"file": receipt["file"], **{key: receipt[key] for key in _TOLD if key in receipt}}
    told |= {f"patch:{change['file']}": change["sha256"] for change in part.get("patches", ())}
    told.setdefault("key", part["key"])
    sources = [*_sources(part, receipt)]
    return Component(
        name=part["name"],
        version=receipt["version"],
        type=ComponentType.LIBRARY,
        bom_ref=_ref({"name": part["name"], "sha256": receipt["sha256"]}),
        purl=_purl({**receipt, "name": part["name"]}),
        hashes=[_sha256(receipt["sha256"])],
        pedigree=_pedigree(part, receipt, sources),
        external_references=list(_references(sources)),
        properties=_properties(told),
    )


def _sources(part: Data, receipt: Data) -> Iterator[Data]:
    """The published wheel, or the archives: a component's own first, then what it fetches."""
    yield from part.get("archives", ())
    if part.get("source"):
        # The receipt says what the file really was.
        yield {**part["source"], **(receipt.get("source") or {})}


def _pedigree(part: Data, receipt: Data, sources: Iterable[Data]) -> Pedigree:
    patches = [
        Patch(type=PatchClassification.UNOFFICIAL, diff=Diff(url=XsUri(f"patches/{file}")))
        for file in _applied(part, receipt)
    ]
    commits = [
        Commit(uid=source["commit"], url=XsUri(source["url"]))
        for source in sources
        if source.get("commit")
    ]
    ancestors = [_ancestor(part, source) for source in sources]
    return Pedigree(ancestors=ancestors, commits=commits, patches=patches)


def _ancestor(part: Data, source: Data) -> Component:
    return Component(
        name=source["name"],
        version=source.get("version") or source.get("commit"),
        type=ComponentType.LIBRARY,
        bom_ref=f"source:{part['name']}:{source['name']}:{source['sha256'][:16]}",
        purl=_purl(source) if "version" in source else None,
        hashes=[_sha256(source["sha256"])],
        properties=_properties({"file": source["file"]}),
    )


def _applied(part: Data, receipt: Data) -> Iterator[str]:
    """The patches that went in: of one that did not apply the receipt says so."""
    state = {patch["sha256"]: patch.get("state") for patch in receipt.get("patches", ())}
    for change in part.get("patches", ()):
        if state.get(change["sha256"], "applied") == "applied":
            yield change["file"]


def _references(sources: Iterable[Data]) -> Iterator[ExternalReference]:
    for source in sources:
        if source.get("url"):
            git = bool(source.get("commit"))
            kind = ExternalReferenceType.VCS if git else ExternalReferenceType.DISTRIBUTION
            yield ExternalReference(type=kind, url=XsUri(source["url"]))


def _properties(told: Data, before: str = "firstlight") -> list[Property]:
    """Every value with its path as its name: `firstlight:toolkit:nvcc`."""
    found: list[Property] = []
    for name, value in told.items():
        path = f"{before}:{name}"
        if isinstance(value, Mapping):
            found += _properties(value, path)
        elif isinstance(value, list | tuple):
            found += _properties({str(n): item for n, item in enumerate(value)}, path)
        elif value is not None:
            found.append(Property(name=path, value=str(value)))
    return found


def _purl(wheel: Data) -> PackageURL:
    name = canonicalize_name(wheel["name"])
    return PackageURL("pypi", None, name, wheel["version"], {"file_name": wheel["file"]})


def _ref(wheel: Data) -> str:
    return f"{canonicalize_name(wheel['name'])}:{wheel['sha256'][:16]}"


def _sha256(text: str) -> HashType:
    return HashType(alg=HashAlgorithm.SHA_256, content=text)
