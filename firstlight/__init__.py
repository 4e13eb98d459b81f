"""Firstlight: build an LLM serving stack on GPU hosts, serve models, and prove them right."""

__version__ = "0.1.0"
