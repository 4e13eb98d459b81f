"""The front desk: one task per verb. What a verb does is told in firstlight/flows/<verb>.py."""

import sys
from pathlib import Path

from invoke import Collection, task

from firstlight.flows import front

ROOT = Path(__file__).resolve().parent

HOST = "a name of inventory/ (default: the inventory's)"
PROFILE = "a name of recipes/profiles/ (default: the host's, else the inventory's)"
STACK = "a name of recipes/stacks/ (default: the profile's)"
DRY = "print the plan as a shell script and change nothing"
JSON = "print data for programs"
DEBUG = "show tracebacks, connections and round trips"
COMMON = {"host": HOST, "profile": PROFILE, "stack": STACK}
COMMON |= {"dry-run": DRY, "json": JSON, "debug": DEBUG}


def verb(**words):
    """A task whose flags are explained by COMMON and by `words`, with long flags only."""

    def made(body):
        # `from_` stands for --from, which Python keeps for itself.
        names = {name.strip("_").replace("_", "-") for name in body.__code__.co_varnames}
        shown = {name: text for name, text in (COMMON | words).items() if name in names}
        return task(help=shown, auto_shortflags=False)(body)

    return made


@verb()
def up(c, host="", profile="", dry_run=False, debug=False):
    """Do everything: build the stack, deploy the profile, prove it, show how to ask it."""
    front.run("up", ROOT, host=host, profile=profile, dry_run=dry_run, debug=debug)


@verb(
    cancel="end the build that runs on the host",
    component="build that one of the stack and what it needs, and no release",
    arch="what GPU to build for on a host without one, 12.0",
    twice="build the component in two places and compare the wheels",
)
def build(
    c, host="", stack="", profile="", component="", arch="", twice=False,
    cancel=False, dry_run=False, debug=False,
):  # fmt: skip
    """Build a stack on a host from its lock; again: re-attach, or say that it is in place."""
    front.run(
        "build", ROOT, host=host, stack=stack, profile=profile, component=component, arch=arch,
        twice=twice, cancel=cancel, dry_run=dry_run, debug=debug,
    )  # fmt: skip


@verb()
def deploy(c, profile="", host="", dry_run=False, debug=False):
    """Start a profile on a host, wait until it is ready, smoke-test it, then switch to it."""
    front.run("deploy", ROOT, host=host, profile=profile, dry_run=dry_run, debug=debug)


@verb()
def stop(c, profile="", host="", dry_run=False, debug=False):
    """Stop a profile's server on a host."""
    front.run("stop", ROOT, host=host, profile=profile, dry_run=dry_run, debug=debug)


@verb()
def status(c, host="", json=False, debug=False):
    """Show what is built and what is served on a host."""
    front.run("status", ROOT, host=host, json=json, debug=debug)


@verb(follow="go on as lines come", lines="how many of the last lines to begin with")
def logs(c, profile="", host="", follow=False, lines="100", json=False, debug=False):
    """Show a server's log; --follow survives a lost link."""
    front.run(
        "logs", ROOT, host=host, profile=profile,
        follow=follow, lines=lines, json=json, debug=debug,
    )  # fmt: skip


@verb()
def smoke(c, profile="", host="", json=False, debug=False):
    """Ask a running server the profile's questions and compare its own figures."""
    front.run("smoke", ROOT, host=host, profile=profile, json=json, debug=debug)


@verb(question="what to ask")
def ask(c, question="", profile="", host="", json=False, debug=False):
    """Ask a running server one question."""
    front.run(
        "ask", ROOT, question=question, host=host, profile=profile, json=json, debug=debug
    )  # fmt: skip


@verb()
def facts(c, host="", json=False, debug=False):
    """Show what a host is: system, GPUs, driver, toolkits, Pythons."""
    front.run("facts", ROOT, host=host, json=json, debug=debug)


@verb()
def check(c, json=False, debug=False):
    """Load and validate every file of the project; touch no host."""
    front.run("check", ROOT, json=json, debug=debug)


@verb()
def render(c, profile="", host="", json=False, debug=False):
    """Show the files that a deploy would write; secrets are not shown."""
    front.run("render", ROOT, host=host, profile=profile, json=json, debug=debug)


@verb(
    model="another folder, of this machine or of --host; config.json alone is enough",
    memory="GiB left on one GPU for KV and states, for a host that is not there",
)
def kv(c, profile="", host="", model="", memory="", json=False, debug=False):
    """Show the capacity card: what BF16, FP8 and FP4 hold, and whether BF16 is affordable."""
    front.run(
        "kv", ROOT, profile=profile, host=host, model=model, memory=memory,
        json=json, debug=debug,
    )  # fmt: skip


@verb(model="another folder, of this machine or of --host; alone it is judged by no profile")
def audit(c, profile="", host="", stack="", model="", json=False, debug=False):
    """Say before a launch what each KV cache dtype would be, and whether it is quietly wrong."""
    front.run(
        "audit", ROOT, profile=profile, host=host, stack=stack, model=model,
        json=json, debug=debug,
    )  # fmt: skip


@verb(kv="the precisions, the first is what the others are held against; by default bf16,fp8_e4m3")
def compare(c, profile="", host="", kv="", json=False, dry_run=False, debug=False):
    """Measure what each KV precision costs: launch one after another, score the same texts."""
    front.run(
        "compare", ROOT, profile=profile, host=host, kv=kv,
        json=json, dry_run=dry_run, debug=debug,
    )  # fmt: skip


@verb(check="say whether the lock goes with its stack, and resolve nothing")
def lock(c, stack="", check=False, dry_run=False, debug=False):
    """Resolve a stack to exact files with their hashes."""
    front.run("lock", ROOT, stack=stack, check=check, dry_run=dry_run, debug=debug)


@verb()
def sbom(c, host="", stack="", json=False, debug=False):
    """Print the bill of materials of a release on a host: CycloneDX 1.6, as JSON."""
    front.run("sbom", ROOT, host=host, stack=stack, json=json, debug=debug)


@verb(
    keep="how many of the newest releases of each stack stay",
    store="also what no release that stays names: artifacts, wheels, sources, uv's cache",
    caches="also what makes builds quick: the compilers' cache, the cache of git repositories",
)
def prune(c, host="", keep="3", store=False, caches=False, dry_run=False, debug=False):
    """Remove old releases of a host, never one that is deployed or was before."""
    front.run(
        "prune", ROOT, host=host, keep=keep, store=store, caches=caches,
        dry_run=dry_run, debug=debug,
    )  # fmt: skip


@verb(**{"from": "the host that has it built (default: this machine)"}, to="hosts: gpu02,gpu03")
def ship(c, stack="", from_="", to="", dry_run=False, debug=False):
    """Send what is built on one host to others, and assemble its release there."""
    front.run("ship", ROOT, stack=stack, source=from_, to=to, dry_run=dry_run, debug=debug)


@verb(wheel="a file of this machine, or of --host", arch="like 12.0a (default: any)")
def verify(c, wheel="", arch="", host="", json=False, debug=False):
    """Show what a wheel holds, and hold it against its name, its RECORD and --arch."""
    front.run("verify", ROOT, wheel=wheel, arch=arch, host=host, json=json, debug=debug)


@verb(log="a log of any size; - is standard input")
def explain(c, log="", json=False, debug=False):
    """Say why a log ends badly: the cause, the line that shows it, the fix, a link."""
    front.run("explain", ROOT, log=log, json=json, debug=debug)


@verb()
def fetch(c, stack="", dry_run=False, debug=False):
    """Bring every source and wheel of a lock onto this machine; builds then need no network."""
    front.run("fetch", ROOT, stack=stack, dry_run=dry_run, debug=debug)


VERBS = (
    up, build, fetch, deploy, stop, status, logs, smoke, ask, facts, check, render, kv, lock,
    verify, explain, ship, sbom, prune, audit, compare,
)  # fmt: skip
namespace = Collection(*VERBS)
front.heed(sys.argv, namespace)
