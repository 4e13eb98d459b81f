"""The server of the tiny engine: SGLang's log lines and endpoints, canned answers."""

import argparse
import json
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from sglang.srt import scoring, server_args

BUILT = "as published"
ANSWERS = {"France": "The capital of France is Paris.", "days": "There are 7 days in a week."}
ECHO = "Copy this text exactly:\n\n"
DTYPES = {"fp8_e4m3": "torch.float8_e4m3fn", "fp8_e5m2": "torch.float8_e5m2"}
REFUSAL = "CPU FP8 KV cache requires Intel AMX support."
options = argparse.Namespace()


def say(message: str) -> None:
    print(time.strftime("[%Y-%m-%d %H:%M:%S] ") + message, flush=True)


def answer(question: str) -> str:
    if options.fault == "wrong":
        return "The moon is made of cheese, as everybody knows."
    if question.startswith(ECHO):
        return question.removeprefix(ECHO)
    return next((text for word, text in ANSWERS.items() if word in question), "I do not know that.")


def said(path: str, body: dict[str, Any]) -> Any:
    """The body of an answer to a POST."""
    if options.fault == "asked":
        say("Scheduler hit an exception: Traceback (most recent call last):")
        print("RuntimeError: CUDA error: an illegal instruction was encountered", flush=True)
        os._exit(1)
    if path == "/generate" and options.fault == "dies" and options.kv_cache_dtype == "fp8_e5m2":
        say("Scheduler hit an exception: Traceback (most recent call last):")
        say("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.40 GiB.")
        os._exit(1)
    if path == "/generate":
        return scoring.generate(body, options.kv_cache_dtype, options.fault)
    if body.get("logprobs"):
        return scoring.answer(options.kv_cache_dtype)
    text = answer(body["messages"][-1]["content"])
    message = {"role": "assistant", "content": text}
    return {"choices": [{"message": message, "finish_reason": "stop"}]}


class Handler(BaseHTTPRequestHandler):
    """The endpoints that a deploy and a comparison use."""

    def do_GET(self) -> None:
        found: dict[str, Any] = {
            "/health_generate": {},
            "/server_info": {
                "version": "0.5.23",
                "kv_cache_dtype": options.kv_cache_dtype,
                "max_total_num_tokens": options.max_total_tokens,
            },
            "/v1/models": {"data": [{"id": options.served_model_name, "max_model_len": 8192}]},
        }
        self.reply(200 if self.path in found else 404, found.get(self.path))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.reply(200, said(self.path, body))

    def reply(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def wait_at_gate(name: str) -> None:
    """Go on once the file that a variable names is gone."""
    while name in os.environ and Path(os.environ[name]).exists():
        time.sleep(0.05)


def load() -> None:
    say(f"server_args={vars(options)}")
    say(f"the tiny engine, {BUILT}")
    say("Load weight begin. avail mem=9.00 GB")
    wait_at_gate("TINY_LOADING")
    if options.fault == "silent":
        time.sleep(3600)
    if options.fault == "crash":
        raise RuntimeError("the third shard cannot be read")
    if options.fault == "amx" and options.kv_cache_dtype == "fp8_e4m3":
        raise ValueError(REFUSAL)
    say("Load weight end. elapsed=0.10 s, type=Tiny, avail mem=8.90 GB, mem usage=0.10 GB.")
    flag = "fp8_e4m3" if options.fault == "fp8" else options.kv_cache_dtype
    tokens, dtype = options.max_total_tokens, DTYPES.get(flag, "torch.bfloat16")
    size = "0.18" if dtype == "torch.bfloat16" else "0.09"
    sizes = f"K size: {size} GB, V size: {size} GB"
    say(f"KV Cache is allocated. dtype: {dtype}, #tokens: {tokens}, {sizes}")
    say("Memory pool end. avail mem=8.50 GB")
    say(f"max_total_num_tokens={tokens}, max_running_requests=8, context_len=8192")


def serve() -> threading.Thread:
    """Answer from now on."""
    server = ThreadingHTTPServer((options.host, options.port), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    return thread


def main() -> None:
    parser = argparse.ArgumentParser(prog="launch_server.py")
    server_args.ServerArgs.add_cli_args(parser)
    parser.parse_args(namespace=options)
    if options.fault == "argument":
        parser.error("argument --device: no such device")
    if options.fault == "late":
        serve().join(1.5)
    load()
    if options.fault == "deaf":
        time.sleep(3600)
    if options.fault != "late":
        serve()
    say("The server is fired up and ready to roll!")
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main()
