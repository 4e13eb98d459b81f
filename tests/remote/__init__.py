"""Tests of the programs that run on a host, each by running it as a host does."""
