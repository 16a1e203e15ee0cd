"""The sandbox as a process of its own: ready when it says so, gone when it is told."""

import json
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import httpx


def test_it_announces_itself_serves_and_stops(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    command = [
        sys.executable,
        "-m",
        "rollout.testing.serve",
        "--port",
        "0",
        "--ready-file",
        str(ready),
        "--scale",
        "0.02",
        "--engine",
        '{"slots": 64}',
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 20
        while not ready.exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        described = json.loads(ready.read_text())
        assert described["pid"] == process.pid
        assert stat.S_IMODE(ready.stat().st_mode) == 0o600
        headers = {"Authorization": f"Bearer {described['management_key']}"}
        workers = httpx.get(described["server_url"] + "/v2/workers", headers=headers, trust_env=False).json()["items"]
        assert {row["name"] for row in workers} == {"spark-01", "spark-02", "staging"} == {row["name"] for row in described["workers"]}
        for row in described["workers"]:
            assert httpx.get(row["url"] + "/healthz", trust_env=False).status_code == 200
            assert "gpustack:worker_node_memory_total_bytes" in httpx.get(row["metrics_url"] + "/metrics", trust_env=False).text
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=10)
        assert (process.returncode, out.strip(), err) == (0, described["server_url"], "")
    finally:
        process.kill()
        process.communicate()
