"""Tests of the flows room."""
