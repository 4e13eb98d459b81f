"""The flags of the tiny engine: the few that a profile needs, and those that make it go wrong."""

import argparse
import os
import time
from pathlib import Path

# A test holds a build or a start at this point for as long as the file is there.
while "TINY_GATE" in os.environ and Path(os.environ["TINY_GATE"]).exists():
    time.sleep(0.05)

FAULTS = (
    "none",
    "crash",
    "argument",
    "silent",
    "deaf",
    "wrong",
    "fp8",
    "late",
    "amx",
    "nan",
    "dies",
    "asked",
)


class ServerArgs:
    """What `capabilities.py` asks for its parser."""

    @staticmethod
    def add_cli_args(parser: argparse.ArgumentParser) -> None:
        """Names and kinds as in SGLang, but for --fault."""
        parser.add_argument("--model-path", required=True, help="folder of the weights")
        parser.add_argument("--served-model-name", help="name in the API")
        parser.add_argument("--host", default="127.0.0.1", help="address")
        parser.add_argument("--port", type=int, default=30000, help="port")
        parser.add_argument("--device", help="cpu")
        parser.add_argument("--attention-backend", help="what reads the KV pool")
        parser.add_argument(
            "--kv-cache-dtype", default="auto", choices=["auto", "bf16", "fp8_e4m3", "fp8_e5m2"]
        )
        parser.add_argument("--max-total-tokens", type=int, help="tokens of the KV pool")
        parser.add_argument("--fault", default="none", choices=FAULTS, help="how to go wrong")
