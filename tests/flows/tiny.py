"""A tiny stack: an engine of two files, its wheel, its lock; built and served within seconds."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import socket
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firstlight.accuracy import kvcpu
from firstlight.build.component import Component
from firstlight.build.lock import LockFile, PythonLock, make_lock, render
from firstlight.build.recipe import Stack
from firstlight.build.wheel import Wheel
from firstlight.core.schema import load
from tests.flows.project import REPO, Project, make_project
from tests.remote.checkpoints import checkpoint, layer

ENGINE = Path(__file__).parent / "tiny_engine"
FETCH = REPO / "firstlight/remote/fetch_wheels.py"

STACK = """\
schema: 1
name: tiny
title: The tiny engine
engine: sglang
python: ["3.11", "3.12", "3.13"]
arch: x86_64
glibc: "2.17"
disk_gib: 1
tag: tiny
components: {{sglang: {{version: 0.5.23}}}}
tools: [uv=={uv}]
env:
  TINY_GATE: {gate}
"""

COMPONENT = """\
schema: 1
name: sglang
title: The tiny engine
versions:
  0.5.23: {sources: [{kind: wheel}]}
local_version: firstlight.${tag}
"""

SAY_SO = "sglang/0001-say-so.patch"
PATCH = """\
--- a/sglang/launch_server.py
+++ b/sglang/launch_server.py
@@ -14,3 +14,3 @@
-BUILT = "as published"
+BUILT = "with our patch"
 ANSWERS = {"France": "The capital of France is Paris.", "days": "There are 7 days in a week."}
 ECHO = "Copy this text exactly:\\n\\n"
"""

REGISTRY = """\
schema: 1
patches:
  - file: sglang/0001-say-so.patch
    component: sglang
    versions: ==0.5.23
    reason: a test has to see that the engine is patched
    upstream: never
    drop_when: the tests are
    load_bearing: true
"""

PROFILE = """\
schema: 1
name: tiny
title: The tiny engine
stack: tiny
model: {{kind: path, path: {model}}}
served_model_name: tiny
args:
  device: cpu
  kv_cache_dtype: bf16
  max_total_tokens: 16384
  fault: none
env:
  TINY_LOADING: {loading}
smoke:
  questions:
    - ask: What is the capital of France?
      expect: [Paris]
  echo: The blue lantern is lit.
service:
  port: {port}
  launcher: process
  start_timeout_s: 120
  stop_timeout_s: 5
"""

NATIVE = ("max_total_tokens: 16384", "max_total_tokens: 16384\n  attention_backend: torch_native")
# Shapes whose pool the tiny engine's log is true to: 23,040 bytes of bf16 a token.
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 576,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
}


@dataclass(frozen=True)
class Tiny:
    """A project whose only stack and profile are tiny.

    A build waits before it asks the engine for its flags while `gate` exists, and a server while
    it loads its weights while `loading` exists. `root` is where the host `local` has everything.
    """

    project: Project
    pantry: Path
    gate: Path
    loading: Path
    root: Path
    port: int

    def profile(self, *edits: tuple[str, str]) -> None:
        """Change the profile."""
        self.project.change("recipes/profiles/tiny.yaml", *edits)

    def let_fp8_in(self) -> None:
        """Give its patch the name of that which lets an FP8 KV cache in on a CPU, with NATIVE."""
        self.project.change("patches/registry.yaml", (SAY_SO, kvcpu.LIFTS))
        folder = self.project.root / "patches"
        (folder / SAY_SO).rename(folder / kvcpu.LIFTS)

    def servers(self) -> list[int]:
        """The process ids of the engine's servers that were started from `root`."""
        words = ["pgrep", "-f", f"{self.root}/releases/.*launch_server"]
        found = subprocess.run(words, capture_output=True, text=True)
        return [int(word) for word in found.stdout.split()]

    def unfinished(self) -> list[str]:
        """What was begun and not finished, below `root`."""
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*.partial*"))

    def made(self, folder: str) -> list[str]:
        """The names of what lies in a folder below `root`."""
        return sorted(path.name for path in (self.root / folder).glob("*"))

    def end(self) -> None:
        """Open the gates; end every server and every job that was started below `root`."""
        for gate in (self.gate, self.loading):
            gate.unlink(missing_ok=True)
        for program in self.root.glob("deployments/*/*/serve.sh"):
            subprocess.run(["bash", str(program), "stop", str(program.parent), "1"])
        for program in self.root.glob("jobs/*[!l]/supervise.sh"):
            subprocess.run(["bash", str(program), "cancel", str(program.parent), "1"])


def refused(done: subprocess.CompletedProcess[str], code: int) -> str:
    """The message of a verb that ended with that code: one, and no traceback."""
    said = done.stdout + done.stderr
    assert done.returncode == code, said
    assert "Traceback" not in said
    assert done.stderr.startswith("error: ") and done.stderr.count("\nerror: ") == 0, said
    assert "a fault of ours" not in said
    return done.stderr


def free_port() -> int:
    """A port of the loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def make_pantry(folder: Path) -> Path:
    """A folder with the tiny engine's wheel and uv's: all that pip needs to find."""
    folder.mkdir(parents=True, exist_ok=True)
    make_wheel(folder)
    uv = _uv()
    row = uv.model_dump(include={"name", "version", "file", "sha256", "size", "index"})
    request = folder / "request.json"
    request.write_text(json.dumps({"python": "3.11", "wheels": [row]}))
    subprocess.run([sys.executable, str(FETCH), str(request), str(folder / "wheels")], check=True)
    (folder / uv.file).hardlink_to(folder / "wheels" / uv.sha256 / uv.file)
    return folder


def make_wheel(folder: Path) -> Path:
    """The tiny engine as a published wheel."""
    info = "sglang-0.5.23.dist-info"
    metadata = b"Metadata-Version: 2.1\nName: sglang\nVersion: 0.5.23\n"
    kind = b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files = {str(p.relative_to(ENGINE)): p.read_bytes() for p in sorted(ENGINE.rglob("*.py"))}
    files |= {f"{info}/METADATA": metadata, f"{info}/WHEEL": kind}
    rows = io.StringIO()
    record = csv.writer(rows, lineterminator="\n")
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        record.writerow((name, f"sha256={digest}", len(data)))
    record.writerow((f"{info}/RECORD", "", ""))
    path = folder / "sglang-0.5.23-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {**files, f"{info}/RECORD": rows.getvalue().encode()}.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return path


def make_tiny(folder: Path, pantry: Path, place: Path | None = None, **local: Any) -> Tiny:
    """A tiny project in `folder`; `local` is added to the inventory's entry of this machine.

    Projects with one `place` have one root and the same gates, so that they share releases.
    """
    shared = place or folder
    gate, loading, root, model = (shared / name for name in ("gate", "loading", "root", "model"))
    if not model.exists():
        checkpoint(model, layer(0), layer(1), config=CONFIG)
    env = {"PIP_FIND_LINKS": str(pantry), "PIP_NO_INDEX": "1"}
    host = {"name": "local", "root": str(root), "env": env, **local}
    files = {
        "recipes/stacks/tiny.yaml": STACK.format(uv=_uv().version, gate=gate),
        "recipes/components/sglang.yaml": COMPONENT,
        "recipes/profiles/tiny.yaml": PROFILE.format(
            model=model, loading=loading, port=(port := free_port())
        ),
        "patches/registry.yaml": REGISTRY,
        f"patches/{SAY_SO}": PATCH,
    }
    project = make_project(folder, [host], defaults={"host": "local", "profile": "tiny"})
    for name in ("recipes", "patches"):
        for path in sorted((project.root / name).rglob("*.*")):
            # What is known of failures is of no stack.
            if path.name != "failures.yaml":
                path.unlink()
    for file, text in files.items():
        project.write(file, text)
    project.write("recipes/locks/tiny.lock.yaml", make_tiny_lock(project, pantry))
    return Tiny(project, pantry, gate, loading, Path(host["root"]), port)


def make_tiny_lock(project: Project, pantry: Path) -> str:
    """The lock of the project's tiny stack: the wheels of the pantry."""
    path = "recipes/stacks/tiny.yaml"
    stack = load(project.read(path), path, Stack).value
    part = load(project.read("recipes/components/sglang.yaml"), "sglang.yaml", Component).value
    wheel = pantry / "sglang-0.5.23-py3-none-any.whl"
    source = Wheel(
        name="sglang",
        version="0.5.23",
        file=wheel.name,
        sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        size=wheel.stat().st_size,
    )
    found = {python: PythonLock(wheels=(), sources=(source,)) for python in stack.python}
    return render(make_lock(stack, {"sglang": part}, found, [_uv()]))


def _uv() -> Wheel:
    path = REPO / "recipes/locks/sglang-cpu.lock.yaml"
    lock = load(path.read_text(), path.name, LockFile).value
    return next(tool for tool in lock.tools if tool.name == "uv")
