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
