"""The images themselves, where they can be built: both are, and the federation of the compose file runs in them.

It takes buildah, and a base image with Python 3.11 and pip, which FLOWER_PCA_BASE_IMAGE names: python:3.11-slim,
or a Debian with python3, python3-venv, python3-pip and a link `python`. FLOWER_PCA_BUILD_OPTIONS has more options for
`buildah build`, such as a volume with pip's configuration.
"""

import os
import shlex
import shutil
import subprocess
import uuid

import numpy as np
import pytest

from deployment.test_compose import NODES, ROOT, SERVICES, Containers, dockerfile_of, said_with, write_inputs
from flower_pca import PCAResult, simulate

BASE = os.environ.get("FLOWER_PCA_BASE_IMAGE", "")
ALONE = ["--isolation", "chroot"]  # works without a daemon and without namespaces

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("compose"),
    pytest.mark.skipif(not (BASE and shutil.which("buildah")), reason="it takes buildah, and FLOWER_PCA_BASE_IMAGE"),
]


def buildah(*words):
    found = subprocess.run(["buildah", *map(str, words)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr[-2000:]
    return found.stdout.strip()


class InImages(Containers):
    """The services in their images, on this machine's network."""

    def __init__(self, folder):
        super().__init__(folder, folder)
        self.mark = uuid.uuid4().hex
        self.working = {}
        for name in {service["image"] for service in SERVICES.values()}:
            more = shlex.split(os.environ.get("FLOWER_PCA_BUILD_OPTIONS", ""))
            file = f"docker/{name.removeprefix('flower-pca-')}.Dockerfile"
            buildah("build", *ALONE, "--build-arg", f"BASE={BASE}", *more, "--file", file, "--tag", name, ".")
        for name, service in SERVICES.items():  # Copying an image takes a while, so all are copied first.
            self.working[name] = buildah("from", service["image"])

    def home(self, name):
        return f"/var/lib/pca/{self.mark}-{name}"

    def here(self, name, word):
        word = word.replace("superlink:8000", f"127.0.0.1:{self.port}").replace("--host=0.0.0.0", "--host=127.0.0.1")
        return word.replace("--port=8000", f"--port={self.port}")

    def start(self, name):
        service = SERVICES[name]
        words = list(service.get("entrypoint", [])) or [said_with(dockerfile_of(name), "ENTRYPOINT")[-1].strip('[]"')]
        words += [*service["command"], *([f"--port={self.ports[name]}"] if name in NODES else [])]
        mounts = []
        for volume in [*service["volumes"], *(["superlink:/var/lib/pca"] if name == "run" else [])]:
            source, target = volume.split(":")[:2]
            (self.folder / source).mkdir(parents=True, exist_ok=True) if "." not in source else None
            mounts += ["--volume", f"{self.folder / source}:{target}"]
        given = ["--env", f"FLWR_HOME={self.home(name)}", "--env", "COLUMNS=200", "--env", "NO_COLOR=1"]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                ["buildah", "run", *ALONE, "--user", "0:0", *given, *mounts, self.working[name], "--"]
                + [self.here(name, word) for word in words],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self.running[name]

    def close(self):
        super().close()
        for container in self.working.values():
            buildah("rm", container)


@pytest.fixture
def images(tmp_path):
    write_inputs(tmp_path)
    made = InImages(tmp_path)
    yield made
    made.close()


def test_a_federation_in_images_gives_the_bits_of_a_simulation(images, tmp_path):
    images.start("superlink")
    images.await_words("superlink", "Uvicorn running")
    run = images.start("run")
    images.await_words("run", "registered successfully", len(NODES))
    for name in NODES:
        images.start(name)
    assert run.wait(600) == 0, images.log("run")
    shards = [np.load(tmp_path / f"data/rows-{i}.npy") for i in range(len(NODES))]
    reference = simulate("auto(oversample='auto')", shards, n_components=3, answers="fixed")
    result = PCAResult.load(tmp_path / "superlink/out/result.npz")
    # numpy may be another version
    np.testing.assert_allclose(result.components_, reference.components_, rtol=0.0, atol=1e-12)
