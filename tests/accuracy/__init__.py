"""Tests of the accuracy room."""
