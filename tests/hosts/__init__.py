"""Test hosts: real Debian trees booted by systemd-nspawn, each with an address and an sshd."""
