"""Runs inside the server's own environment: the installed `gpustack` command with every listener on 127.0.0.1.

With its gateway disabled the server binds 0.0.0.0 and no flag changes that. Nothing else of the server is touched. Must be
started with `python -I`, or the files beside this one would shadow the server's packages.
"""

from __future__ import annotations

import gc
import sys

gc.disable()  # importing the server creates a million objects that stay: collecting meanwhile costs half of the start

import uvicorn  # type: ignore[import-not-found]  # noqa: E402

_bind = uvicorn.Config.__init__


def _bind_loopback(self, app, host="127.0.0.1", *args, **kwargs):  # type: ignore[no-untyped-def]
    _bind(self, app, "127.0.0.1", *args, **kwargs)


uvicorn.Config.__init__ = _bind_loopback

from gpustack.config.config import Config  # type: ignore[import-not-found]  # noqa: E402

Config.get_proxy_listen_address = lambda self, default="127.0.0.1": "127.0.0.1"

from gpustack.main import main  # type: ignore[import-not-found]  # noqa: E402

if __name__ == "__main__":
    gc.freeze()
    gc.enable()
    sys.exit(main())
