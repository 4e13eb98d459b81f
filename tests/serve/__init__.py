"""Tests of the serve room."""
