#!/bin/bash
# Test hosts: the users and settings of the base tree. Runs once, as root, inside the new tree.
set -eu

# Each shell that a person may have; zsh answers with noise before every command.
useradd --create-home --shell /usr/bin/zsh zoe
useradd --create-home --shell /usr/bin/fish finn
useradd --create-home --shell /bin/bash bob
useradd --create-home --shell /bin/bash nolin
echo 'echo "zshenv of zoe speaks"' > /home/zoe/.zshenv
chown zoe:zoe /home/zoe/.zshenv

# Three kinds of sudo: without a password, with one, and none at all.
echo 'finn:correct horse' | chpasswd
printf '%s\n' 'zoe ALL=(ALL) NOPASSWD: ALL' 'finn ALL=(ALL) ALL' > /etc/sudoers.d/people
chmod 440 /etc/sudoers.d/people

# What `loginctl enable-linger bob` leaves behind.
mkdir -p /var/lib/systemd/linger
touch /var/lib/systemd/linger/bob

echo 'PasswordAuthentication no' > /etc/ssh/sshd_config.d/test-hosts.conf

# Each host gets its own keys and identity when it is made.
rm -f /etc/ssh/ssh_host_*
: > /etc/machine-id

rm -rf /var/cache/apt/archives/*.deb /var/lib/apt/lists/*
