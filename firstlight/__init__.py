"""Firstlight: build an LLM serving stack on GPU hosts, serve models, and prove them right."""
