"""An error says what, where and what to do, and carries its exit code."""

from firstlight.core import errors


def test_the_exit_codes_are_those_of_the_house_plan() -> None:
    kinds = [errors.ConfigError([]), errors.HostError("x"), errors.StepError("x")]
    codes = [kind.exit_code for kind in [*kinds, errors.ProofError("x"), errors.Detached("x")]]
    assert codes == [2, 3, 4, 5, 130]


def test_place_remedy_and_log_are_shown() -> None:
    error = errors.StepError("it broke", where="gpu01", remedy="mend it", log="a\nb")
    assert str(error) == "gpu01: it broke\n  -> mend it\n  | a\n  | b"


def test_faults_are_sorted_by_place_and_said_once() -> None:
    fault = errors.Fault("a.yaml", 10, 1, "second")
    error = errors.ConfigError([fault, errors.Fault("a.yaml", 9, 1, "first"), fault])
    assert str(error) == "a.yaml:9:1: first\na.yaml:10:1: second"
