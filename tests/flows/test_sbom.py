"""`invoke sbom` on a release that was built: one round trip, JSON on standard output."""

from __future__ import annotations

import json

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
