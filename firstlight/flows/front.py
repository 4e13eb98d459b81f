"""The front desk: every verb starts here, and here every error becomes a message and a code."""

from __future__ import annotations

import codecs
import contextlib
import importlib
import io
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from firstlight.core.words import harmless
from firstlight.flows.spelling import wrong_word


def run(verb: str, root: Path, *, debug: bool = False, json: bool = False, **options: Any) -> None:
    """Tell the story of `firstlight.flows.<verb>` and print its report.

    Exits with the report's code, or with the error's: 2 config, 3 host, 4 step, 5 proof,
    130 interrupted, 70 a fault of ours. A traceback is shown with `debug` only.
    """
    from firstlight.core.errors import ConfigError, FirstlightError
    from firstlight.effects.console import Console

    _spell_out()
    _be_at_home()
    with Console(sys.stderr if json else sys.stdout, debug) as console:
        try:
            story = importlib.import_module(f"firstlight.flows.{verb}")
            console.typed = _typed(verb, story.run, {**options, "json": json, "debug": debug})
            report = story.run(root, console, **options)
        except FirstlightError as error:
            console.settle()
            if isinstance(error, ConfigError) and not error.remedy:
                error.remedy = "correct that; `invoke check` looks at every file of the project"
            _leave(f"error: {error}", error.exit_code, debug)
        except KeyboardInterrupt:
            console.settle()
            again = console.typed or f"invoke {verb}"
            _leave(f"interrupted; `{again}` again goes on from what is finished", 130, debug)
        except BrokenPipeError:
            # The reader of a pipe has left (`invoke logs --follow | head`): that is the end.
            _unread()
            sys.exit(0)
        except Exception as error:
            console.settle()
            what = f"error: a fault of ours: {type(error).__name__}: {error}"
            _leave(f"{what}\n  -> `--debug` shows where; please report it", 70, debug)
    _print(report, json)


def heed(argv: Sequence[str], collection: Any) -> None:
    """Exit with 2 where `invoke` was given a verb or a flag that is none: it names no nearest."""
    _end_with_reader(argv)
    wrong = wrong_word(argv, collection)
    if wrong:
        _leave(f"error: {wrong}", 2, False)


def _end_with_reader(argv: Sequence[str]) -> None:
    """Invoke's own lists end in a traceback where their reader left: `invoke --list | head -1`."""
    if {*argv[1:2], *argv[-1:]} & {"--list", "-l", "--help", "-h"}:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def _typed(verb: str, story: Callable[..., Any], options: Mapping[str, Any]) -> str:
    """The verb with the flags that were given: those that are not as the story has them anyway."""
    import inspect

    from firstlight.core.command import typed

    own = {name: one.default for name, one in inspect.signature(story).parameters.items()}
    given = {name: value for name, value in options.items() if value != own.get(name)}
    # Python keeps `from` for itself.
    return typed(verb, {"from" if name == "source" else name: one for name, one in given.items()})


def _print(report: Any, as_json: bool) -> None:
    try:
        if as_json:
            import json

            text = json.dumps(report.data, indent=2, ensure_ascii=not _takes_all())
            print(harmless(text))
        elif report.text:
            print(harmless(report.text.rstrip("\n")))
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        _unread()
    except OSError as error:
        _unread()
        _leave(f"error: cannot write to standard output: {error.strerror}", 1, False)
    if report.exit_code:
        sys.exit(report.exit_code)


def _spell_out() -> None:
    """What standard output cannot hold is spelled out, `\\u2603`: no text is worth a traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _be_at_home() -> None:
    """A service may start without HOME, and bash then finds ours below `/`: the account has one."""
    if not os.environ.get("HOME"):
        import pwd

        with contextlib.suppress(KeyError):
            os.environ["HOME"] = pwd.getpwuid(os.getuid()).pw_dir


def _takes_all() -> bool:
    """True when standard output can hold any character; JSON has its own way to spell one."""
    encoding = getattr(sys.stdout, "encoding", None)
    return encoding is not None and codecs.lookup(encoding).name == "utf-8"


def _unread() -> None:
    """What is left for standard output has no reader; Python must not try at its end."""
    from firstlight.effects.console import nowhere

    sys.stdout = nowhere()


def _leave(message: str, code: int, debug: bool) -> NoReturn:
    if debug:
        import traceback

        traceback.print_exc()
    print(harmless(message), file=sys.stderr, flush=True)
    sys.exit(code)
