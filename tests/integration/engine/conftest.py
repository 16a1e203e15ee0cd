"""Virtual time passes in larger strides than real time: nobody types here while the engine sleeps."""

import pytest


@pytest.fixture(autouse=True)
def long_strides(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine looks for commands once a virtual second instead of twenty times."""
    monkeypatch.setattr("rollout.engine.run.LISTEN", 1.0)
