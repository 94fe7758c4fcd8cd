"""The images as they are built: their size, the seconds of a message and the memory of each program in them.

`FLOWER_PCA_BASE_IMAGE=... python -m benchmarks.images`: with what tests/deployment/test_images.py asks for.
"""

import contextlib
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

from benchmarks import table
from flower_pca import PCAResult

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from deployment.test_compose import NODES, write_inputs
from deployment.test_images import InImages, buildah

# what runs at a service: its name in the compose file, and a word of the program's command
PROGRAMS = {
    "SuperLink": ("superlink", "flower-superlink"),
    "ServerApp": ("superlink", "flwr-serverapp"),
    "SuperNode": (NODES[0], "flower-supernode"),
    "ClientApp": (NODES[0], "flwr-clientapp"),
}


def run(folder: Path) -> tuple[PCAResult, dict[str, float]]:
    """One run of the compose file's federation in the images; the most memory of its own that each program had."""
    most: dict[str, float] = defaultdict(float)
    with contextlib.closing(InImages(folder)) as images:
        images.start("superlink")
        images.header("superlink", "Uvicorn running")
        server = images.start("run")
        images.header("run", "registered successfully", len(NODES))
        for name in NODES:
            images.start(name)
        while server.poll() is None:
            for program, (service, word) in PROGRAMS.items():
                most[program] = max(most[program], images.local_results(service, word))
            time.sleep(0.2)
        assert server.returncode == 0, images.log("run")
    result = PCAResult.load(folder / "superlink/out/result.npz")
    assert isinstance(result, PCAResult)
    return result, most


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        write_inputs(Path(made))
        result, most = run(Path(made))
    seconds = [entry.seconds for entry in result.history]
    print(f"messages: {len(seconds)}; seconds of each: {', '.join(f'{value:.2f}' for value in seconds)}")
    print(f"median of all but the first: {np.median(seconds[1:]):.2f}")
    print(table(["program", "MB of its own"], [[name, f"{value:.0f}"] for name, value in most.items()]))
    print(buildah("images", "--format", "{{.Name}} {{.Size}}"))
