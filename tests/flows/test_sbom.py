"""`invoke sbom` on a release that was built: one round trip, JSON on standard output."""

from __future__ import annotations

import json

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tests.flows.tiny import Tiny, refused


def test_a_release_tells_what_it_is_made_of(built: Tiny) -> None:
    done = built.project.invoke("sbom", "--stack", "tiny", check=True)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(done.stdout) is None
    data = json.loads(done.stdout)
    (release,) = built.made("releases")
    assert data["metadata"]["component"]["name"] == release
    (engine,) = data["components"]
    (wheel,) = built.root.glob("store/*/*.whl")
    assert engine["version"] == "0.5.23+firstlight.tiny"
    told = {p["name"]: p["value"] for p in engine["properties"]}
    assert told["firstlight:file"] == wheel.name
    patches = engine["pedigree"]["patches"]
    assert [patch["diff"]["url"] for patch in patches] == ["patches/sglang/0001-say-so.patch"]
    again = built.project.invoke("sbom", "--json", "--debug", check=True)
    assert json.loads(again.stdout) == data
    assert "debug: local: 0 connection(s), 1 script(s)" in again.stderr


def test_a_time_comes_from_source_date_epoch_alone(built: Tiny) -> None:
    done = built.project.invoke("sbom", env={"SOURCE_DATE_EPOCH": "1700000000"}, check=True)
    assert json.loads(done.stdout)["metadata"]["timestamp"] == "2023-11-14T22:13:20+00:00"
    done = built.project.invoke("sbom", env={"SOURCE_DATE_EPOCH": "today"})
    assert "SOURCE_DATE_EPOCH takes seconds since 1970; got 'today'" in refused(done, 2)


def test_what_is_not_built_says_how_to_build_it(tiny: Tiny) -> None:
    message = refused(tiny.project.invoke("sbom"), 3)
    assert "local: stack tiny, as it is locked now, is not built there" in message
    assert "-> invoke build --host local --stack tiny" in message


@pytest.mark.parametrize("name", ["manifest.json", "capabilities.json"])
def test_a_release_whose_papers_lost_their_content_is_made_again(tiny: Tiny, name: str) -> None:
    """What a machine that lost its power may leave: the file's name, and nothing in it."""
    tiny.project.invoke("build", check=True)
    (paper,) = tiny.root.glob(f"releases/*/{name}")
    whole = paper.read_text()
    paper.write_text("")
    seen = tiny.project.invoke("status", "--json", check=True).stdout
    assert json.loads(seen)["releases"] == []
    assert "is built" in tiny.project.invoke("build", check=True).stdout
    assert paper.read_text() == whole


def test_a_damaged_manifest_is_told_with_a_way_that_works(tiny: Tiny) -> None:
    tiny.project.invoke("build", check=True)
    (paper,) = tiny.root.glob("releases/*/manifest.json")
    paper.write_text("{")
    message = refused(tiny.project.invoke("sbom"), 3)
    assert (
        "-> remove the manifest.json of that release, and `invoke build` makes it again" in message
    )
    paper.unlink()
    tiny.project.invoke("build", check=True)
    tiny.project.invoke("sbom", check=True)
