"""Tests of the hosts room."""
