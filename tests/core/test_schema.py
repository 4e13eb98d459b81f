"""Every fault of a file is reported at once, each at its own place."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from firstlight.core.errors import ConfigError
from firstlight.core.schema import Model, load, nearest
from firstlight.hosts.inventory import InventoryFile


def faults(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(text, "hosts.yaml", InventoryFile)
    return str(caught.value).splitlines()


def bomb(lines: int) -> str:
    """Each line is an alias of nine of the line before."""
    rows = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, lines)]
    return "".join(["a0: &a0 [x]\n", *rows])


CASES = {
    bomb(12): ["hosts.yaml:1:5: aliases (*name) make too much of so little"],
    f"schema: {'a' * 5000}\n": [
        f"hosts.yaml:1:9: expected 1; got '\"{'a' * 59}'... (5002 characters)"
    ],
    "": ["hosts.yaml:1:1: the file is empty"],
    "a: [": ["hosts.yaml:2:1: not YAML: did not find expected node content"],
    "schema: 1\nschema: 1\n": ["hosts.yaml:2:1: key 'schema' is given twice"],
    "schema: 2\n": ["hosts.yaml:1:9: expected 1; got 2"],
    "schema: 1\nhosts: 3\n": ["hosts.yaml:2:8: expected a list; got 3"],
    "schema: 1\nhosts: [{address: x}]\n": ["hosts.yaml:2:9: needs key 'name'"],
    "hosts: []\nhots: []\n": [
        "hosts.yaml:1:1: needs key 'schema'",
        "hosts.yaml:2:1: unknown key 'hots'; did you mean 'hosts'?",
    ],
    "schema: 1\nhosts:\n- name: gpu01\n  adress: x\n  port: '22'\n  labels: {rack: 7}\n": [
        "hosts.yaml:4:3: unknown key 'adress'; did you mean 'address'?",
        'hosts.yaml:5:9: expected a whole number; got "22"',
        "hosts.yaml:6:18: expected a string; got 7; put it in quotes",
    ],
    "schema: 1\nhosts: [{name: a b, address: x, fetch: hst}]\n": [
        "hosts.yaml:2:16: 'a b' is no name: letters, digits, '.', '_' and '-' only",
        "hosts.yaml:2:40: expected one of 'auto', 'host' or 'controller'; got \"hst\"",
    ],
    "schema: 1\nhosts: [{name: gpu01}]\n": [
        "hosts.yaml:2:9: host 'gpu01' needs an address; only 'local' has none"
    ],
    "schema: 1\nhosts: !!python/object:os.system {}\n": [
        "hosts.yaml:2:8: tag 'tag:yaml.org,2002:python/object:os.system' is not plain data"
    ],
    "schema: 1\nhosts: [{name: a, address: b, port: !!int x, labels: {a: !!bool maybe}}]\n": [
        "hosts.yaml:2:37: 'x' is no whole number",
        "hosts.yaml:2:58: 'maybe' is neither true nor false",
    ],
    "schema: 0x_\n!!float x: 1\n": [
        "hosts.yaml:1:9: '0x_' is no whole number",
        "hosts.yaml:2:1: 'x' is no number",
    ],
    f"schema: 1\nhosts: [{{name: a, address: b, port: {'9' * 5000}}}]\n": [
        f"hosts.yaml:2:37: '{'9' * 60}'... (5000 characters) is no whole number"
    ],
    "schema: 0x1ffffffffffffffff\n": [
        "hosts.yaml:1:9: '0x1ffffffffffffffff' has more than 64 bits"
    ],
    "schema: 1\n<<: 3\n": [
        "hosts.yaml:2:5: not YAML: expected a mapping or list of mappings for merging, "
        "but found scalar"
    ],
    "schema: 1\nhosts: &all [*all]\n": [
        "hosts.yaml:2:8: an alias (*name) leads back into what it stands in"
    ],
    "schema: 1\nhosts:\n\t- name: a\n": [
        "hosts.yaml:3:1: not YAML: found character that cannot start any token"
    ],
}


@pytest.mark.parametrize("text", CASES)
def test_each_fault_has_its_place_and_its_words(text: str) -> None:
    assert faults(text) == CASES[text]


def test_a_date_stays_text() -> None:
    text = "schema: 1\nhosts: [{name: local, labels: {bought: 2026-01-02}}]\n"
    assert load(text, "h", InventoryFile).value.hosts[0].labels == {"bought": "2026-01-02"}


@given(st.text(max_size=200))
def test_no_text_at_all_escapes_as_another_error(text: str) -> None:
    try:
        load(text, "any.yaml", InventoryFile)
    except ConfigError as error:
        assert all(fault.file == "any.yaml" for fault in error.faults)


@pytest.mark.parametrize(
    ("word", "hint"),
    [("gpu1", "; did you mean 'gpu01'?"), ("zzz", "; known: gpu01, local")],
)
def test_the_nearest_name_is_offered(word: str, hint: str) -> None:
    assert nearest(word, ["local", "gpu01"]) == hint


class Said(Model):
    """Whatever a file says."""

    data: Any


WORDS = st.text("abc :#'{}-", max_size=5)
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | WORDS
DATA = st.recursive(SCALARS, lambda one: st.lists(one) | st.dictionaries(WORDS, one), max_leaves=20)


@given(DATA)
def test_a_file_says_what_yaml_reads_in_it(data: Any) -> None:
    text = yaml.safe_dump({"data": data}, default_flow_style=None, width=1000)
    assert load(text, "x.yaml", Said).value.data == data


def test_what_a_mapping_takes_over_from_another_is_in_it() -> None:
    text = "data:\n  a: &a {b: 1}\n  c:\n    <<: *a\n    d: 0x1f\n"
    assert load(text, "x.yaml", Said).value.data == {"a": {"b": 1}, "c": {"b": 1, "d": 31}}
