"""What a deploy looks at while its plan runs: the audit, the start, and the proof."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from firstlight.build.failures import Rules
from firstlight.core.command import Script
from firstlight.core.errors import FirstlightError
from firstlight.core.plan import WriteFile
from firstlight.effects import catalog, execute
from firstlight.effects.shell import Shell
from firstlight.flows import capacity, evidence, gate, prove, watch
from firstlight.flows.target import Case, Goal
from firstlight.serve.deploy import Target
from firstlight.serve.readiness import Limits
from firstlight.serve.serverlog import ServerLog
from firstlight.serve.smoke import Outcome


@dataclass
class Launching:
    """A deploy under way. `told` is the proof's data once there is one; each watch finds what
    those before it left."""

    case: Case
    goal: Goal
    rules: Rules
    told: dict[str, Any] = field(default_factory=dict)
    _judged: gate.Judged | None = None
    _log: ServerLog | None = None

    @property
    def watches(self) -> Mapping[str, Callable[[], None]]:
        """What the plan's Watch actions do."""
        return {"audit": self._audit, "ready": self._ready, "smoke": self._smoke}

    @property
    def _engine(self) -> gate.Engine:
        return gate.engine_of(self.case, self.goal.target)

    def _audit(self) -> None:
        self._judged = gate.judge(self.case, self._engine, self.goal.facts)
        case = self.case
        gate.require(self._judged, case.profile, case.host.name, case.console)

    def _ready(self) -> None:
        service, made = self.goal.target.service, self.goal.target.manifest
        told = self.case.profile.service
        limits = Limits(told.start_timeout_s, told.stall_s)
        shell, console = self.case.shell, self.case.console
        self._log = watch.until_ready(shell, service, made, limits, self.rules, console)

    def _smoke(self) -> None:
        assert self._judged is not None and self._log is not None
        made, profile, shell = self.goal.target, self.case.profile, self.case.shell
        key = prove.api_key(profile, os.environ)
        proof = prove.prove(shell, made.manifest, profile, self._log, self.case.console, key)
        self.told.update(
            prove.to_json(proof, profile),
            policy=gate.summary(self._judged, profile),
            capacity=self._capacity(self._judged, self._log, proof.found.kv_gib),
        )
        keep(shell, made, proof.verdict.outcome, self.told)
        if proof.verdict.outcome is not Outcome.PASS:
            watch.require_alive(shell, made.service, self.rules)
        prove.require(proof, shell.host.name, profile.name, watch.whole_log(made.service))
        self._evidence()

    def _evidence(self) -> None:
        """Keep what the launch showed; a project that cannot be written is no reason to undo it."""
        made, root, console = self.goal.target.manifest, self.case.root, self.case.console
        told = {"deployment": made.id, "release": made.release, **self.told}
        try:
            path = evidence.keep_launch(root, made.profile, self.case.host.name, told)
        except FirstlightError as error:
            console.say(f"# {error.what}")
        else:
            console.say(f"  evidence: {catalog.shown(path, root)}")

    def _capacity(
        self, judged: gate.Judged, log: ServerLog, kv_gib: float | None
    ) -> dict[str, Any]:
        """What was predicted against the server's own log; a finding is said, and no failure."""
        host, profile, version = self.case.host, self.case.profile, self._engine.version
        facts = self.goal.facts
        found = capacity.compared(host, profile, version, judged.found, facts, log, kv_gib)
        for line in capacity.lines(found):
            self.case.console.say(f"  {line}")
        return found


def keep(shell: Shell, made: Target, outcome: Outcome, told: Mapping[str, Any]) -> None:
    """A pass lies with its deployment; any other proof beside them all, until the next pass."""
    home, failed = made.rendered.home, made.rendered.home.parent / "failed.json"
    passed = outcome is Outcome.PASS
    path = home / "proof.json" if passed else failed
    shell.run(execute.write_script(WriteFile(path, prove.saved(told, made.manifest))))
    if passed:
        shell.run(Script('rm -f -- "$1"', (str(failed),)))
