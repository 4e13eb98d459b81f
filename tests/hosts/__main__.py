"""Test hosts by hand: `python -m tests.hosts up gpu01`, and `down` when they are not needed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.hosts import fleet, needs
from tests.hosts.call import FleetError
from tests.hosts.fleet import TestHost
from tests.hosts.machine import read_bind
from tests.hosts.site import Site, chosen, close_site, keep, kept_sites, open_site, take


def main(words: list[str]) -> int:
    """Do what the words say; 3 where no host can be booted, as for any fault of a host."""
    options = _parser().parse_args(words)
    reason = needs.missing()
    try:
        if reason is not None:
            raise FleetError(reason)
        options.act(options)
    except FleetError as error:
        print(error, file=sys.stderr)
        return 3
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.hosts", description=__doc__)
    verbs = parser.add_subparsers(required=True)
    up = verbs.add_parser("up", help="boot hosts that live until `down`")
    up.add_argument("name", nargs="+", help="gpu01 ... gpu99, or bastion; gpu02 brings bastion")
    up.add_argument("--hosts-file", type=Path, help="write the inventory here; default: print it")
    up.add_argument("--user", default="zoe", help="who logs in: root, zoe, finn, bob or nolin")
    up.add_argument("--bind", action="append", default=[], metavar="SOURCE:TARGET[:rw]")
    up.set_defaults(act=_up)
    down = verbs.add_parser("down", help="stop hosts that `up` booted, and all booted with them")
    down.add_argument("name", nargs="*", help="default: the hosts of the only site that is up")
    down.add_argument("--site", type=int, metavar="N", help="the site that `up` told")
    down.set_defaults(act=_down)
    return parser


def _up(options: argparse.Namespace) -> None:
    site = open_site()
    try:
        hosts = _boot_all(site, options)
        home = site.folder / "home"
        fleet.fill_home(site, home, [host.name for host in hosts])
    except BaseException:
        close_site(site)
        raise
    keep(site, [host.pid for host in hosts])
    _tell(site, hosts, home, options)


def _boot_all(site: Site, options: argparse.Namespace) -> list[TestHost]:
    binds = [read_bind(text) for text in options.bind]
    booted: dict[str, TestHost] = {}
    for name in _with_bastion(options.name):
        via = booted["bastion"] if name == "gpu02" else None
        booted[name] = fleet.boot(site, name, binds, via)
    return list(booted.values())


def _with_bastion(names: Iterable[str]) -> list[str]:
    wanted = set(names) | ({"bastion"} if "gpu02" in names else set())
    return sorted(wanted)


def _tell(site: Site, hosts: list[TestHost], home: Path, options: argparse.Namespace) -> None:
    text = fleet.inventory(hosts, options.user)
    if options.hosts_file is not None:
        options.hosts_file.write_text(text)
        text = f"# inventory: {options.hosts_file}\n"
    print(text, end="")
    print(f"# a home that knows these hosts: HOME={home}")
    print(f"# until: python -m tests.hosts down --site {site.number}")


def _down(options: argparse.Namespace) -> None:
    sites = {site.number: site for site in kept_sites()}
    up = {number: site.host_names() for number, site in sites.items()}
    for number in chosen(up, options.name, options.site):
        take(sites[number])
        close_site(sites[number])
        print(f"stopped {', '.join(up[number])}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
