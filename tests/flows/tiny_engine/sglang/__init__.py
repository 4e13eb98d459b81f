"""A tiny engine for tests of the flows: it answers as SGLang does, and computes nothing."""
