"""What a deploy is about to make, on which ground: chosen and checked before anything changes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from firstlight import __version__
from firstlight.core.command import typed
from firstlight.core.errors import ConfigError, HostError
from firstlight.core.plan import Step
from firstlight.core.schema import Document
from firstlight.effects import catalog
from firstlight.effects.console import Console
from firstlight.effects.execute import Site
from firstlight.effects.shell import Shell
from firstlight.flows import programs, recipes, server
from firstlight.flows.before import look_before
from firstlight.flows.facts import ask_facts
from firstlight.flows.ground import prepare
from firstlight.flows.orders import require_release
from firstlight.flows.reach import look, opener, reached, read_remote
from firstlight.hosts import pythons
from firstlight.hosts.facts import Facts, python_for
from firstlight.hosts.gpus import Gpu
from firstlight.hosts.inventory import Host, Inventory
from firstlight.hosts.survey import Survey
from firstlight.serve import launch, models
from firstlight.serve.arguments import check_args
from firstlight.serve.capabilities import read_capabilities
from firstlight.serve.deploy import Target
from firstlight.serve.fits import misfits, within_reach
from firstlight.serve.launch import Launcher
from firstlight.serve.manifest import FLAVOURS, Damaged, Manifest, home_of, service_of
from firstlight.serve.profile import Profile
from firstlight.serve.readiness import GpuUse, gpu_full, port_taken
from firstlight.serve.render import LAUNCH, UNIT, Deployment, deployment_id

_USUAL_SHARE = 0.5


@dataclass(frozen=True)
class Case:
    """What every launch begins with: a profile, the release that it is to run on, and the host,
    which was looked at."""

    root: Path
    console: Console
    shell: Shell
    inventory: Inventory
    document: Document[Profile]
    release: str
    seen: Survey

    @property
    def profile(self) -> Profile:
        return self.document.value

    @property
    def host(self) -> Host:
        return self.shell.host


@contextlib.contextmanager
def case(root: Path, console: Console, profile: str, host: str) -> Iterator[Case]:
    """The case that a person means by `--profile` and `--host`, while its host is reached.

    Raises HostError where the profile's stack is not built there."""
    inventory = catalog.inventory(root)
    goal = inventory.host(host)
    document = recipes.profile(root, recipes.profile_name(inventory, goal, profile))
    with reached(opener(inventory, goal, console), console) as shell:
        seen = look(shell)
        release = require_release(root, document.value, seen, goal.name)
        yield Case(root, console, shell, inventory, document, release, seen)


@dataclass(frozen=True)
class Goal:
    """A target and how things stand: `running` = it has been started already, `is_current` = it
    was proved and switched to, `old` is the server that runs now and would be replaced, and `back`
    the one to be started again where the new one fails."""

    target: Target
    root: PurePosixPath
    sites: Mapping[str, Site]
    model_steps: tuple[Step, ...]
    done: tuple[str, ...]
    running: bool
    is_current: bool
    old: launch.Deployment | None
    back: launch.Deployment | None
    linger_for: str | None
    facts: Facts


def choose(case: Case, dry_run: bool) -> Goal:
    """Decide what to deploy and how; raises ConfigError or HostError for what cannot be."""
    profile, shell, seen = case.profile, case.shell, case.seen
    facts = ask_facts(shell, seen.root)
    _require_fit(profile, facts, shell.host)
    choice = _launcher(profile, facts, shell.host.name)
    _tell_ceiling(profile, facts, choice.launcher, case.console)
    target = describe(case, facts)
    running = server.settled(shell, target.service).condition in ("starting", "running")
    before = look_before(shell, seen, target.manifest, case.console)
    if not running and (before.old is None or before.old.port != profile.service.port):
        _require_port(case, facts)
    if not running and before.old is None:
        _require_memory(target.rendered, facts, shell.host.name)
    python, wheels = _python(facts, case.release, shell.host.name), models.wheels_of(profile.model)
    ground = prepare(shell, case.inventory, seen, python, wheels, {}, case.console, dry_run)
    made = models.model_name(profile.model)
    done = [f"model {made}"] if made in seen.models else []
    way = target.rendered.release, programs.shipped(seen.root), ground.depot
    steps = () if done else tuple(models.model_steps(profile.model, *way))
    return Goal(
        target,
        seen.root,
        ground.sites,
        steps,
        (*done, *(["the server, started earlier"] if running else [])),
        running,
        _is_current(seen, target.manifest),
        *before.services(seen.root),
        facts.user.name if choice.enable_linger else None,
        facts,
    )


def expected_id(root: Path, host: Host, profile: Profile, release: str, launcher: Launcher) -> str:
    """The id that a deployment of the profile has today."""
    env = _env(root, host, profile)
    key = models.model_key(profile.model)
    return deployment_id(profile, templates(root), release, key, FLAVOURS[launcher], env)


def templates(root: Path) -> dict[str, str]:
    """The project's templates that a deployment is rendered from."""
    folder = root / "templates"
    found = (name for name in (LAUNCH, UNIT) if (folder / name).is_file())
    return {name: catalog.read_text(folder / name, root) for name in found}


def describe(case: Case, facts: Facts) -> Target:
    """The deployment that the profile means on that host; raises ConfigError for its flags."""
    profile, host, release, seen = case.profile, case.host, case.release, case.seen
    launcher = _launcher(profile, facts, host.name).launcher
    home = seen.root / "releases" / release
    file = home / "capabilities.json"
    capabilities = read_capabilities(read_remote(case.shell, file), f"{host.name}:{file}")
    if faults := check_args(case.document, capabilities):
        raise ConfigError(faults, remedy=f"the flags are those of release {release}")
    id_ = expected_id(case.root, host, profile, release, launcher)
    is_root = facts.user.uid == 0
    rendered = Deployment(
        profile=profile,
        home=home_of(seen.root, profile.name, id_),
        release=home,
        model=models.model_path(seen.root, profile.model),
        flavour=FLAVOURS[launcher],
        user="" if is_root else facts.user.name or "",
        env=_env(case.root, host, profile),
        capabilities=capabilities,
    )
    manifest = _manifest(profile, id_, release, str(rendered.model), launcher, not is_root)
    library = seen.root / "lib" / programs.folder_name()
    return Target(rendered, service_of(manifest, seen.root, library), manifest)


def _python(facts: Facts, release: str, host: str) -> tuple[str, str]:
    """The interpreter that a release was made with: its series and its path on the host."""
    digits = release.rsplit("-", 2)[1].removeprefix("py")
    series = f"{digits[0]}.{digits[1:]}"
    found = python_for(facts, [series])
    if isinstance(found, pythons.Python):
        return series, str(found.path)
    raise HostError(found.what, where=host, remedy=found.fix)


def _manifest(
    profile: Profile, id_: str, release: str, model: str, launcher: Launcher, sudo: bool
) -> Manifest:
    service = profile.service
    return Manifest(
        schema=1,
        profile=profile.name,
        id=id_,
        release=release,
        model=model,
        served_model_name=profile.served_model_name,
        launcher=launcher,
        sudo=sudo and launcher == "systemd-system",
        restart=service.restart,
        stop_s=service.stop_timeout_s,
        memory=service.memory_bytes or 0,
        bind=service.bind,
        port=service.port,
        firstlight=__version__,
    )


def _env(root: Path, host: Host, profile: Profile) -> dict[str, str]:
    document, _ = recipes.stack(root, profile.stack)
    return {**document.value.env, **host.env}


def _launcher(profile: Profile, facts: Facts, host: str) -> launch.Choice:
    sudo = facts.sudo.kind
    return launch.choose_launcher(
        profile.service.launcher,
        is_root=facts.user.uid == 0,
        systemd=facts.systemd.system_usable,
        linger=bool(facts.systemd.linger) and facts.systemd.user_usable,
        sudo=sudo if sudo in ("passwordless", "password") else "none",
        where=host,
    )


def _require_fit(profile: Profile, facts: Facts, host: Host) -> None:
    names = (facts.system.dgx, facts.cpu.model, host.labels.get("hw"))
    found = misfits(profile.match, facts.gpus, filter(None, names))
    if found:
        raise HostError(
            f"profile {profile.name} is not for this host: {'; '.join(found)}",
            where=host.name,
            remedy="name another host, or change `match` in the profile",
        )


def _tell_ceiling(profile: Profile, facts: Facts, launcher: Launcher, console: Console) -> None:
    """The kernel lets an account limit memory by cgroups of the second kind only."""
    cannot = launcher == "systemd-user" and facts.memory.cgroup_version != 2
    if profile.service.memory and cannot:
        console.say("# service.memory will not hold: an account's systemd has no ceiling there")


def _is_current(seen: Survey, made: Manifest) -> bool:
    found = seen.deployments.get(made.profile)
    return found is not None and found.current == made.id


def _require_memory(target: Deployment, facts: Facts, host: str) -> None:
    """What the engine would take of each of its GPUs must be free; without the flag, half of it."""
    profile = target.profile
    share = profile.args.get("mem_fraction_static")
    uses = [
        GpuUse(gpu.index, gpu.memory_mib / 1024, gpu.memory_free_mib / 1024)
        for gpu in _cards(target, facts)
        if gpu.memory_mib and gpu.memory_free_mib is not None
    ]
    wanted = share if isinstance(share, float) else _USUAL_SHARE
    refusal = gpu_full(uses, wanted) if profile.match.gpus != 0 else None
    if refusal is not None:
        raise HostError(refusal.text, where=host, remedy=refusal.remedy)


def _cards(target: Deployment, facts: Facts) -> tuple[Gpu, ...]:
    """The cards that the engine may take: other servers may fill the others."""
    first = target.profile.args.get("base_gpu_id")
    visible = {**target.env, **target.profile.env}.get("CUDA_VISIBLE_DEVICES")
    return within_reach(facts.gpus, visible, first if isinstance(first, int) else 0)


def _require_port(case: Case, facts: Facts) -> None:
    port, host = case.profile.service.port, case.host.name
    if not facts.taken(port):
        return
    ours = _holder(case, port)
    whom = f"the server of profile {ours}" if ours else ""
    stop = typed("stop", {"profile": ours, "host": host}) if ours else ""
    refusal = port_taken(port, whom, stop)
    raise HostError(refusal.text, where=host, remedy=refusal.remedy)


def _holder(case: Case, port: int) -> str:
    """The other profile whose server has that port, "" for none: one that is stopped has not."""
    for name in sorted(set(case.seen.deployments) - {case.profile.name}):
        found = case.seen.deployments[name]
        if not (found.current or found.started):
            continue
        with contextlib.suppress(Damaged):
            made = server.last_started(case.shell, case.seen, name)
            service = server.service(made, case.seen.root)
            if made.port == port and server.state(case.shell, service).may_run:
                return name
    return ""
