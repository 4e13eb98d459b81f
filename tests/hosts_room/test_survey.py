"""One script tells what of ours is on a host, whatever its root is called."""

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from firstlight.core.command import Script
from firstlight.core.errors import HostError
from firstlight.effects import library
from firstlight.effects.local import LocalShell
from firstlight.hosts.inventory import Host
from firstlight.hosts.survey import Survey, parse, require_writable


def look(root: Path) -> Survey:
    script = Script(library.program("survey.sh"), args=(str(root),))
    result = LocalShell(Host(name="local")).run(script)
    assert result.rc == 0, result.error_text
    return parse(result.text, "local")


def test_an_empty_host_is_an_empty_survey(tmp_path: Path) -> None:
    survey = look(tmp_path / "not" / "there")
    assert survey.writable and not survey.releases and not survey.wheels
    assert str(survey.root) == str(tmp_path / "not" / "there")


def test_finished_things_are_seen_and_partial_ones_are_not(tmp_path: Path) -> None:
    root = tmp_path / "a b 'c' $d"
    for place in ("releases/r1", "releases/r2.partial", "models/m", "store/s", "wheels/ab"):
        (root / place).mkdir(parents=True)
    (root / "releases/husk/cache").mkdir(parents=True)
    (root / "releases/lost-power").mkdir()
    (root / "releases/lost-power/manifest.json").touch()
    for release in ("r1", "r2.partial"):
        (root / "releases" / release / "manifest.json").write_text("{}")
    (root / "wheels/ab/x.whl").touch()
    (root / "wheels/ab/y.whl.partial").touch()
    (root / "route").write_text("controller\n")
    home = root / "deployments/p"
    (home / "1").mkdir(parents=True)
    (home / "current").symlink_to("1")
    (home / "1/manifest.json").write_text('{"port":\n\t30000}\n')
    survey = look(root)
    assert survey.releases == {"r1"} and survey.models == {"m"} and survey.artifacts == {"s"}
    assert survey.wheels == {"ab/x.whl"} and survey.route == "controller"
    assert survey.deployments["p"].current == "1"
    assert survey.deployments["p"].manifest == {"port": 30000}


def test_a_disk_that_is_read_only_is_told_from_one_that_is_another_s(tmp_path: Path) -> None:
    """An account that may not write can be let; on such a disk not even root can write."""
    program = library.program("survey.sh")
    words = ["unshare", "-rm", "bash", "-c"]
    mount = 'mount -t tmpfs -o "ro,$2" none "$1" || exit 77\n'
    done = subprocess.run(
        [*words, mount + program, "bash", str(tmp_path), "size=1m"], capture_output=True, text=True
    )
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip(f"this account may mount nothing here: {done.stderr}")
    survey = parse(done.stdout, "gpu01")
    assert (survey.writable, survey.blocked_at, survey.read_only) == (False, str(tmp_path), True)
    with pytest.raises(HostError, match="is on a file system that is read-only") as told:
        require_writable(survey, "gpu01")
    assert "\n  -> have it mounted for writing" in str(told.value)
    assert not look(tmp_path).read_only


def test_an_answer_cut_short_is_no_answer() -> None:
    with pytest.raises(HostError, match="did not answer our first question whole"):
        parse("@@firstlight\troot\t/x\n", "gpu01")


def test_noise_of_a_shell_is_not_an_answer(tmp_path: Path) -> None:
    text = Script(library.program("survey.sh"), args=(str(tmp_path),))
    out = LocalShell(Host(name="local")).run(text).text
    assert parse(f"Welcome!\nroot\t/evil\n{out}", "h") == parse(out, "h")


def look_as_nobody(root: Path) -> Survey:
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    words = [*nobody, "bash", "-s", "--", str(root)]
    program = library.program("survey.sh")
    done = subprocess.run(words, input=program, capture_output=True, text=True)
    return parse(done.stdout, "gpu01")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
@pytest.mark.parametrize("closed", ["", "root", "root/deployments", "root/deployments/p"])
def test_a_folder_that_may_not_be_looked_into_is_not_empty(closed: str) -> None:
    # Outside of pytest's own folders, which are closed to others from the top.
    with tempfile.TemporaryDirectory() as made:
        home = Path(made)
        (home / "root/deployments/p/1").mkdir(parents=True)
        for path in (home, home / "root", home / "root/deployments", home / "root/deployments/p"):
            path.chmod(0o755)
        assert set(look_as_nobody(home / "root").deployments) == {"p"}
        (home / closed).chmod(0o700)
        with pytest.raises(HostError) as caught:
            look_as_nobody(home / "root")
    assert f"user nobody may not look into {home / closed}" in str(caught.value)
    assert "have it opened to that account" in caught.value.remedy
