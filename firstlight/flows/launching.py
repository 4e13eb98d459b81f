"""What a deploy looks at while its plan runs: the audit, the start, and the proof."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from firstlight.build.failures import Rules
from firstlight.core.command import Script
from firstlight.core.errors import FirstlightError
from firstlight.core.plan import WriteFile
from firstlight.core.schema import Document
from firstlight.effects import catalog, execute
from firstlight.effects.console import Console
from firstlight.effects.shell import Shell
from firstlight.flows import capacity, evidence, gate, prove, target, watch
from firstlight.hosts.inventory import Inventory
from firstlight.hosts.survey import Survey
from firstlight.serve.deploy import Target
from firstlight.serve.profile import Profile
from firstlight.serve.readiness import Limits
from firstlight.serve.serverlog import ServerLog
from firstlight.serve.smoke import Outcome


@dataclass
class Launching:
    """A deploy under way. `told` is the proof's data once there is one; each watch finds what
    those before it left."""

    root: Path
    shell: Shell
    inventory: Inventory
    document: Document[Profile]
    seen: Survey
    goal: target.Goal
    rules: Rules
    console: Console
    told: dict[str, Any] = field(default_factory=dict)
    _judged: gate.Judged | None = None
    _log: ServerLog | None = None

    @property
    def watches(self) -> Mapping[str, Callable[[], None]]:
        """What the plan's Watch actions do."""
        return {"audit": self._audit, "ready": self._ready, "smoke": self._smoke}

    @property
    def _profile(self) -> Profile:
        return self.document.value

    @property
    def _engine(self) -> gate.Engine:
        rendered = self.goal.target.rendered
        assert rendered.capabilities is not None
        return gate.Engine(rendered.capabilities.version, rendered.capabilities, rendered.release)

    def _audit(self) -> None:
        facts = self.goal.facts
        self._judged = gate.judge(
            self.shell, self.inventory, self.document, self._engine, self.seen, facts, self.console
        )
        gate.require(self._judged, self._profile, self.console)

    def _ready(self) -> None:
        service, made = self.goal.target.service, self.goal.target.manifest
        limits = Limits(self._profile.service.start_timeout_s, self._profile.service.stall_s)
        self._log = watch.until_ready(self.shell, service, made, limits, self.rules, self.console)

    def _smoke(self) -> None:
        assert self._judged is not None and self._log is not None
        made, key = self.goal.target, prove.api_key(self._profile, os.environ)
        proof = prove.prove(self.shell, made.manifest, self._profile, self._log, self.console, key)
        self.told.update(
            prove.to_json(proof, self._profile),
            policy=gate.summary(self._judged, self._profile),
            capacity=self._capacity(self._judged, self._log, proof.found.kv_gib),
        )
        keep(self.shell, made, proof.verdict.outcome, self.told)
        prove.require(proof, self.shell.host.name, self._profile.name)
        self._evidence()

    def _evidence(self) -> None:
        """Keep what the launch showed; a project that cannot be written is no reason to undo it."""
        made, (profile, host) = (
            self.goal.target.manifest,
            (self._profile.name, self.shell.host.name),
        )
        told = {"deployment": made.id, "release": made.release, **self.told}
        try:
            path = evidence.keep_launch(self.root, profile, host, told)
        except FirstlightError as error:
            self.console.say(f"# {error.what}")
        else:
            self.console.say(f"  evidence: {catalog.shown(path, self.root)}")

    def _capacity(
        self, judged: gate.Judged, log: ServerLog, kv_gib: float | None
    ) -> dict[str, Any]:
        """What was predicted against the server's own log; a finding is said, and no failure."""
        version, facts = self._engine.version, self.goal.facts
        found = capacity.compared(
            self.shell.host, self._profile, version, judged.found, facts, log, kv_gib
        )
        for line in capacity.lines(found):
            self.console.say(f"  {line}")
        return found


def keep(shell: Shell, made: Target, outcome: Outcome, told: Mapping[str, Any]) -> None:
    """A pass lies with its deployment; any other proof beside them all, until the next pass."""
    home, failed = made.rendered.home, made.rendered.home.parent / "failed.json"
    passed = outcome is Outcome.PASS
    path = home / "proof.json" if passed else failed
    shell.run(execute.write_script(WriteFile(path, prove.saved(told, made.manifest))))
    if passed:
        shell.run(Script('rm -f -- "$1"', (str(failed),)))
