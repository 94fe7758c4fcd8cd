"""The commands of docs/back-up.md: the archive has what the page names, and nobody reads it without the passphrase."""

import os
import shlex
import shutil
import subprocess

import pytest
from pages import blocks

needed = pytest.mark.skipif(any(shutil.which(name) is None for name in ("gpg", "tar")), reason="it takes GnuPG and tar")
# The passphrase comes from here, so no agent is started; few rounds for its key are quick.
GPG = ("--batch", "--no-autostart", "--pinentry-mode", "loopback", "--s2k-count", "65536", "--passphrase")
SECRET = b"-----BEGIN OPENSSH PRIVATE KEY-----"


@needed
@pytest.mark.slow
def test_an_archive_is_encrypted_and_the_node_is_stopped_while_it_is_made(tmp_path):
    places = {
        "/etc/pca": "node",
        "/var/lib/pca": "memory/flower_pca-rows-0.npz",
        "/etc/systemd/system": "pca-node.service",
    }
    for place, name in places.items():
        file = tmp_path / place[1:] / name
        file.parent.mkdir(parents=True)
        file.write_bytes(SECRET)
    programs, home, done = tmp_path / "bin", tmp_path / "gnupg", tmp_path / "done"
    programs.mkdir()
    home.mkdir(mode=0o700)
    asked = shlex.join([shutil.which("gpg"), *GPG, "page"])
    for name, line in {"systemctl": f"echo $1 >> {done}", "gpg": f'echo gpg >> {done}; exec {asked} "$@"'}.items():
        (programs / name).write_text(f"#!/bin/sh\n{line}\n")
        (programs / name).chmod(0o755)
    environment = {**os.environ, "GNUPGHOME": str(home), "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}

    def call(words):
        command = ["sh", "-ec", words]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, timeout=300, check=True
        ).stdout

    (block,) = [block for block in blocks("docs/back-up.md", "sh") if "--symmetric" in block]
    for place in ("/etc/", "/var/"):
        block = block.replace(f" {place}", f" {tmp_path}{place}")
    call(block)
    assert done.read_text().split() == ["stop", "gpg", "start"]
    (archive,) = tmp_path.glob("*.gpg")
    assert not archive.read_bytes().startswith(b"\x1f\x8b")  # It is no gzip, from which anybody could read the key.
    listed = call(f"gpg --decrypt {archive} | tar --list --gzip").decode()
    assert all(f"{place[1:]}/{name}" in listed for place, name in places.items())
    words = [shutil.which("gpg"), *GPG, "another", "--decrypt", archive]
    wrong = subprocess.run(words, env=environment, capture_output=True, timeout=300, check=False)
    assert wrong.returncode != 0
    assert wrong.stdout == b""
