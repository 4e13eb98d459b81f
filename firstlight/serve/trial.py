"""The trial room: a server of a profile that is measured for a while and then taken away.

It goes by a name of its own, so that what is current, proved and remembered of the profile stays
as it is; while it runs, a note beside it says which server of the profile was stopped for it.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from firstlight.build.digest import short
from firstlight.core.command import Script
from firstlight.core.plan import Run, Step, Watch, WriteFile
from firstlight.core.schema import Document
from firstlight.serve import launch
from firstlight.serve.deploy import Target, proof_steps
from firstlight.serve.profile import Policy, Profile, Smoke

_SUFFIX = ".compare"
_NOTE = "stopped"
_REASON = "launched by invoke compare, which measures what this precision costs"

_CLEAR = f"""\
folder=$(dirname -- "$home")
case $folder in */?*{_SUFFIX}) ;; *) echo "$folder is of no comparison" >&2; return 1 ;; esac
rm -rf -- "$folder"
"""
_CLEAR_UNIT = """\
if [ -e "$units/$unit" ]; then
  rm -rf -- "$units/$unit" "$units/$unit.d" && ctl daemon-reload || return
fi
"""


def trial_name(profile: str) -> str:
    """The name that servers of a comparison go by."""
    return f"{profile}{_SUFFIX}"


def variant(document: Document[Profile], kv: str) -> Document[Profile]:
    """The profile with another KV precision, and nothing else that a server would see.

    It is asked no questions and not started again when it dies: it is measured, not served.
    """
    profile = document.value
    changed = profile.model_copy(
        update={
            "name": trial_name(profile.name),
            "args": {**profile.args, "kv_cache_dtype": kv},
            "policy": Policy(kv="allow_any", reason=_REASON),
            "smoke": Smoke(),
            "service": profile.service.model_copy(update={"restart": "no"}),
        }
    )
    return Document(changed, document.file, document.marks)


def measure_key(deployment: str, host: str, suite: str) -> str:
    """Changes when a measurement of before does not say what one of now would: by the deployment
    (release, model, flags, environment), the host, and the digest of what is asked."""
    return short({"deployment": deployment, "host": host, "suite": suite})


def note_path(folder: PurePosixPath) -> PurePosixPath:
    """The file that says which server of the profile was stopped: a deployment's id."""
    return folder / _NOTE


def note_step(folder: PurePosixPath, deployment: str) -> Step:
    """Remember on the host which server must come back, before it is stopped."""
    write = WriteFile(note_path(folder), f"{deployment}\n")
    return Step("note", "note which server was stopped, for whoever brings it back", write)


def forget_step(folder: PurePosixPath) -> Step:
    """Forget which server was stopped, so that the comparison's end does not bring it back."""
    script = Script('rm -f -- "$1"', (str(note_path(folder)),))
    return Step("forget", "tell the comparison that goes on not to start it again", Run(script))


def noted(folder: PurePosixPath) -> Script:
    """Ends with 1 where the note is gone: somebody stopped that server for good meanwhile."""
    return Script('[ -e "$1" ] || return 1', (str(note_path(folder)),))


def score_step(target: Target) -> Step:
    """Ask the server for what is to be compared."""
    url = f"{target.manifest.url_on_host}/generate"
    body = '{"text": "...", "return_logprob": true, "logprob_start_len": 0, "top_logprobs_num": 1}'
    text = f"# each text; the long answer and the needles likewise\ncurl -fsS {url} -d '{body}'"
    kv = target.rendered.profile.args["kv_cache_dtype"]
    return Step("score", f"score the texts with {kv}", Watch("score", Script(text)))


def ready_step(target: Target) -> Step:
    """Wait for the server."""
    return next(step for step in proof_steps(target) if step.id == "ready")


def clear_step(service: launch.Deployment) -> Step:
    """Take away what a comparison laid on the host; `service` is any of its servers, stopped."""
    with_unit = service.launcher != "process"
    text = launch.CTL[service.launcher] + _CLEAR_UNIT + _CLEAR if with_unit else _CLEAR
    script = launch.deployment_script(service, text, may_need_root=True)
    return Step("clear", "take away what the comparison laid there", Run(script))
