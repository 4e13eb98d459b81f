"""A server that somebody stops while a comparison has made room in its place."""

from __future__ import annotations

import json

from tests.flows.tiny import NATIVE, Tiny


def test_a_server_that_was_stopped_while_it_was_compared_stays_stopped(built: Tiny) -> None:
    built.let_fp8_in()
    built.profile(NATIVE)
    built.project.invoke("deploy", check=True)
    with built.project.start("compare") as process:
        assert process.stdout is not None
        built.loading.touch()
        assert any("loading weights" in line for line in process.stdout)
        plan = built.project.invoke("stop", "--dry-run", check=True).stdout
        built.project.invoke("stop", check=True)
        built.loading.unlink()
        out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")
    assert "tell the comparison that goes on not to start it again" in plan
    assert "the server of tiny was stopped meanwhile: it stays so" in out
    assert "starts again, as it was" not in out
    status = json.loads(built.project.invoke("status", "--json", check=True).stdout)
    assert [one["state"] for one in status["deployments"]] == ["stopped"]
    assert (built.servers(), [*built.root.glob("deployments/*.compare*")]) == ([], [])
