"""Test the signed apps of docs/administrator.md with Flower's own node."""

import base64
import hashlib
import json
import subprocess
import warnings

import pytest
from pages import blocks

with warnings.catch_warnings():  # Warnings of Flower's own imports are not tested here.
    warnings.simplefilter("ignore", DeprecationWarning)
    from flwr.supercore.fab import Fab
    from flwr.supercore.primitives.asymmetric_ed25519 import create_message_to_sign

from cryptography.hazmat.primitives.serialization import load_ssh_private_key


@pytest.fixture
def reviewer(tmp_path):
    """The reviewer's key, made by the command of the page."""
    (command,) = [block for block in blocks("docs/administrator.md", "sh") if "-t ed25519" in block]
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    return tmp_path / "reviewer"


def fab(content, reviewer, name):
    """An app as a SuperLink passes it on, signed as `flwr app review` does."""
    key = load_ssh_private_key(reviewer.read_bytes(), None)
    signature = key.sign(create_message_to_sign(hashlib.sha256(content).digest(), 1_800_000_000))
    says = {"signature": base64.urlsafe_b64encode(signature).decode().rstrip("="), "signed_at": 1_800_000_000}
    return Fab("", content, {name: json.dumps(says), "valid_license": "Valid"})


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_node_takes_what_its_reviewer_has_signed_and_nothing_else(reviewer, tmp_path):
    # Imported late: it takes a twelfth of what all workers import.
    from flwr.supernode.cli.flower_supernode import _try_obtain_trusted_entities, _validate_public_keys_ed25519
    from flwr.supernode.start_client_internal import _verify_fab

    (page,) = blocks("docs/administrator.md", "yaml")
    name = page.partition(":")[0].strip()
    file = tmp_path / "trusted.yaml"
    file.write_text(page.replace("ssh-ed25519 AAAA...", reviewer.with_suffix(".pub").read_text().strip()))
    trusted = _try_obtain_trusted_entities(file)
    _validate_public_keys_ed25519(trusted)
    good = fab(b"an app", reviewer, name)
    assert _verify_fab(good, trusted)
    assert not _verify_fab(Fab("", b"another app", good.verifications), trusted)
    assert not _verify_fab(fab(b"an app", reviewer, "fpk_other"), trusted)
    assert not _verify_fab(Fab("", b"an app", {"valid_license": ""}), trusted)
