"""Inventory files become one inventory, or say what is wrong."""

import pytest

from firstlight.core.errors import ConfigError
from firstlight.core.schema import load
from firstlight.hosts.inventory import Inventory, InventoryFile, UnknownName, merge

ONE = "schema: 1\ndefaults: {host: gpu01}\nhosts: [{name: gpu01, address: 10.0.0.1}]\n"


def merged(*texts: str) -> Inventory:
    return merge(load(text, f"{n}.yaml", InventoryFile) for n, text in enumerate(texts))


def test_local_is_always_there_and_the_default_host_is_named() -> None:
    inventory = merged(ONE)
    assert inventory.host("").name == "gpu01"
    assert inventory.host("local").is_local


def test_an_unknown_host_gets_the_nearest_name() -> None:
    with pytest.raises(UnknownName, match="no host 'gpu1' in the inventory; did you mean 'gpu01'"):
        merged(ONE).host("gpu1")


def test_what_is_said_twice_is_shown_where_it_is_said_again() -> None:
    with pytest.raises(ConfigError) as caught:
        merged(ONE, ONE)
    assert str(caught.value).splitlines() == [
        "1.yaml:2:18: the default host is given twice",
        "1.yaml:3:16: host 'gpu01' is given twice",
    ]


def test_a_default_must_exist() -> None:
    with pytest.raises(ConfigError, match=r"0.yaml:2:18: no host 'gpu02' in the inventory"):
        merged("schema: 1\ndefaults: {host: gpu02}\n")


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("env: {MY-VAR: x}", "not a name for an environment variable: 'MY-VAR'"),
        ('env: {A: "a\\0b"}', "a shell word cannot hold a NUL character"),
        ('root: "/srv/a\\nb"', r"must be printable and not begin with '-'; got '/srv/a\nb'"),
        ("user: -oProxyCommand=x", "not begin with '-'; got '-oProxyCommand=x'"),
        ("proxy_jump: -x", "not begin with '-'; got '-x'"),
    ],
)
def test_what_no_command_line_can_carry_is_a_fault_of_the_file(word: str, message: str) -> None:
    with pytest.raises(ConfigError, match=r"^0\.yaml:2:\d+: ") as caught:
        merged("schema: 1\nhosts: [{name: gpu01, address: x, " + word + "}]\n")
    assert message in str(caught.value)


@pytest.mark.parametrize("address", ["-oProxyCommand=x", '""', '"a\\tb"'])
def test_an_address_is_one(address: str) -> None:
    with pytest.raises(ConfigError, match=r"^0\.yaml:2:32: "):
        merged("schema: 1\nhosts: [{name: gpu01, address: " + address + "}]\n")


def test_odd_but_sound_words_pass() -> None:
    text = "schema: 1\nhosts: [{name: a, address: b, root: \"~/it's ü\", user: 'AD\\ada'}]\n"
    host = merged(text).host("a")
    assert (host.root, host.user) == ("~/it's ü", "AD\\ada")
