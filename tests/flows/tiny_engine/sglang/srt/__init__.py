"""Where SGLang keeps its flags."""
