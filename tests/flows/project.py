"""A project of a test: its own inventory, recipes and HOME, and `invoke` run as a person does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

REPO = Path(__file__).parents[2]
INVOKE = Path(sys.executable).with_name("invoke")
FOLDERS = ("recipes", "templates", "patches")
# What the person who runs the tests has set for hosts and servers must not reach them.
FOREIGN = ("SSH_AUTH_SOCK", "SGLANG_API_KEY", "PYTHONSAFEPATH", "INVOKE_DEBUG")


@dataclass(frozen=True)
class Project:
    """A checkout of which every file may be changed; `home` is the person's HOME."""

    root: Path
    home: Path

    def invoke(
        self,
        *words: str,
        env: Mapping[str, str] | None = None,
        timeout: float = 120.0,
        check: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run `invoke WORDS` to its end, with no terminal; `check`: any code but 0 fails."""
        with self.start(*words, env=env) as process:
            try:
                out, err = process.communicate(timeout=timeout)
            except BaseException:
                process.kill()
                raise
        done = subprocess.CompletedProcess(words, process.returncode, out, err)
        if check:
            assert done.returncode == 0, f"invoke {' '.join(words)}: {done}"
        return done

    def start(self, *words: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Begin `invoke WORDS` and return at once; signals go to it alone."""
        return subprocess.Popen(
            [str(INVOKE), *words],
            cwd=self.root,
            env={**self.environ(), **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            start_new_session=True,
        )

    def environ(self) -> dict[str, str]:
        """The environment of a person whose home is the project's."""
        kept = {name: value for name, value in os.environ.items() if name not in FOREIGN}
        return {**kept, "HOME": str(self.home), "PYTHONPATH": str(REPO), "PYTHONUNBUFFERED": "1"}

    def write(self, path: str, text: str) -> Path:
        """Write a file of the project; what was there is replaced."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def read(self, path: str) -> str:
        """A file of the project."""
        return (self.root / path).read_text(encoding="utf-8")

    def change(self, path: str, *edits: tuple[str, str], to: str = "") -> Path:
        """Replace texts of a file, each of which must be there; `to` writes a copy instead."""
        text = self.read(path)
        for old, new in edits:
            assert old in text, f"{path} has no {old!r}"
            text = text.replace(old, new)
        return self.write(to or path, text)


def make_project(
    folder: Path,
    hosts: Sequence[Mapping[str, Any]],
    *,
    home: Path | None = None,
    defaults: Mapping[str, str] | None = None,
    files: Mapping[str, str] | None = None,
) -> Project:
    """A copy of this project in `folder/project` whose inventory has these hosts.

    `home` may be shared by projects; `files` are written over the copy, by path.
    """
    root, own_home = folder / "project", home or folder / "home"
    root.mkdir(parents=True)
    own_home.mkdir(parents=True, exist_ok=True)
    shutil.copy(REPO / "tasks.py", root)
    for name in FOLDERS:
        shutil.copytree(REPO / name, root / name)
    project = Project(root, own_home)
    said = {"host": "local", "profile": "smollm2-cpu"} if defaults is None else dict(defaults)
    inventory = {"schema": 1, "defaults": said, "hosts": [dict(host) for host in hosts]}
    project.write("inventory/hosts.yaml", yaml.safe_dump(inventory, sort_keys=False))
    for path, text in (files or {}).items():
        project.write(path, text)
    return project
