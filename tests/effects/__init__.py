"""Tests of the effects room."""
