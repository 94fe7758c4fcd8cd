import ipaddress
import os
import shlex
import stat
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.verification import PolicyBuilder, Store

from flower_pca import cli, keys
from flower_pca.base.errors import ConfigError


def certificate(path):
    return x509.load_pem_x509_certificate(path.read_bytes())


def verified(made, subject):
    ca, server = certificate(made.ca), certificate(made.certificate)
    return PolicyBuilder().store(Store([ca])).build_server_verifier(subject).verify(server, []) == [server, ca]


@pytest.fixture
def made(tmp_path):
    return keys.write_keys(tmp_path / "keys", nodes=2, hosts=["superlink.example.org", "192.0.2.1", "localhost"])


@pytest.mark.parametrize("name", ["localhost", "superlink.example.org", "127.0.0.1", "::1", "192.0.2.1"])
def test_the_certificate_holds_for_every_name(made, name):
    try:
        subject = x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        subject = x509.DNSName(name)
    assert verified(made, subject)


def test_the_certificate_holds_for_no_other_name_and_no_other_authority(made, tmp_path):
    with pytest.raises(x509.verification.VerificationError):
        verified(made, x509.DNSName("elsewhere.example.org"))
    other = keys.write_keys(tmp_path / "other", nodes=1)
    mixed = keys.Keys(other.ca, made.certificate, made.key, made.nodes)
    with pytest.raises(x509.verification.VerificationError):
        verified(mixed, x509.DNSName("localhost"))


def test_names_are_those_given_once_each(made):
    names = certificate(made.certificate).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "superlink.example.org"]
    addresses = [str(a) for a in names.get_values_for_type(x509.IPAddress)]
    assert addresses == ["127.0.0.1", "::1", "192.0.2.1"]


def test_valid_since_yesterday_for_a_year(made):
    for path in (made.ca, made.certificate):
        c, now = certificate(path), datetime.now(UTC)
        assert c.not_valid_before_utc < now
        assert abs((c.not_valid_after_utc - now).days - 365) <= 1


def test_the_servers_key_is_that_of_its_certificate(made):
    key = serialization.load_pem_private_key(made.key.read_bytes(), password=None)
    assert key.public_key() == certificate(made.certificate).public_key()


def test_every_node_has_a_key_of_its_own_as_flower_reads_it(made):
    numbers = set()
    for path, public in zip(made.nodes, made.publics, strict=True):
        key = serialization.load_ssh_private_key(path.read_bytes(), password=None)
        assert isinstance(key.curve, ec.SECP384R1)
        assert serialization.load_ssh_public_key(public.read_bytes()) == key.public_key()
        assert public.read_bytes().startswith(b"ecdsa-sha2-nistp384 ")
        numbers.add(key.private_numbers().private_value)
    assert len(numbers) == 2


def test_private_files_are_private_and_nothing_else_is_there(made):
    private = {made.key, *made.nodes}
    assert set(made.ca.parent.iterdir()) == private | {made.ca, made.certificate, *made.publics}
    for path in private:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert b"PRIVATE" not in made.ca.read_bytes()  # The signing key is not kept.


def test_nothing_is_overwritten(made, tmp_path):
    before = {path: path.read_bytes() for path in made.ca.parent.iterdir()}
    with pytest.raises(ConfigError, match=r"The folder for keys must be new or empty, but .*keys has files in it"):
        keys.write_keys(tmp_path / "keys", nodes=1)
    assert {path: path.read_bytes() for path in made.ca.parent.iterdir()} == before
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="file is a file"):
        keys.write_keys(tmp_path / "file", nodes=1)
    with pytest.raises(ConfigError, match=r"The folder for keys, .*below, cannot be written"):
        keys.write_keys(tmp_path / "file/below", nodes=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "keys"]


def test_an_empty_folder_and_a_new_one_deep_down_will_do(tmp_path):
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", tmp_path / "a/b/c"):
        assert keys.write_keys(folder, nodes=1).ca.exists()


def test_what_fails_half_way_leaves_nothing(tmp_path, monkeypatch):
    def broken(path):
        raise KeyboardInterrupt

    monkeypatch.setattr(keys, "_write_node_key", broken)
    with pytest.raises(KeyboardInterrupt):
        keys.write_keys(tmp_path / "keys", nodes=1)
    assert list(tmp_path.iterdir()) == []


def test_one_that_was_quicker_keeps_its_files(tmp_path, monkeypatch):
    replace = os.replace

    def late(draft, target):
        target.mkdir()
        (target / "theirs").touch()
        replace(draft, target)

    monkeypatch.setattr(os, "replace", late)
    with pytest.raises(ConfigError, match="new or empty"):
        keys.write_keys(tmp_path / "keys", nodes=1)
    assert [path.name for path in tmp_path.rglob("*")] == ["keys", "theirs"]


def commands_printed(printed):
    """The commands in what was printed, each as its words."""
    lines = printed.replace("\\\n", " ").splitlines()
    return [shlex.split(line) for line in lines if line.startswith(("  flower-", "  flwr "))]


def test_the_command_says_what_to_do_next(tmp_path, capsys):
    folder = tmp_path / "of all"
    assert cli.main(["keys", str(folder), "--nodes", "2", "--host", "a.example.org", "--host", "192.0.2.7"]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    superlink, *register, first, second = commands_printed(said.out)
    assert superlink == [
        *["flower-superlink", "--host", "0.0.0.0", "--port", "8000", "--enable-supernode-auth"],
        *["--ssl-ca-certfile", f"{folder}/ca.crt", "--ssl-certfile", f"{folder}/server.pem"],
        *["--ssl-keyfile", f"{folder}/server.key", "--database", "superlink.db"],
    ]
    assert register == [["flwr", "supernode", "register", f"{folder}/node-{i}.pub", "pca"] for i in range(2)]
    assert first == [
        *["flower-supernode", "--superlink", "a.example.org:8000", "--port", "8001"],
        *["--root-certificates", f"{folder}/ca.crt", "--auth-supernode-private-key", f"{folder}/node-0"],
        *["--node-config", 'partition-id=0 data="/path/to/rows.npy"'],
    ]
    assert second[4] == "8002"
    assert 'address = "a.example.org:8000"' in said.out
    assert all((folder / name).exists() for name in ("ca.crt", "server.pem", "server.key", "node-1.pub"))


@pytest.mark.parametrize(
    ("host", "address"), [([], "localhost:8000"), (["--host", "2001:db8::1"], "[2001:db8::1]:8000")]
)
def test_the_address_of_the_next_commands(tmp_path, capsys, host, address):
    assert cli.main(["keys", str(tmp_path / "keys"), "--nodes", "1", *host]) == 0
    superlink, _, join = commands_printed(capsys.readouterr().out)
    assert superlink[2] == ("0.0.0.0" if host else "127.0.0.1")
    assert join[2] == address


def test_an_error_is_one_sentence_and_a_code(made, capsys):
    folder = str(made.ca.parent)
    assert cli.main(["keys", folder, "--nodes", "1"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"flower-pca: The folder for keys must be new or empty, but {folder} ")
    assert said.err.count("\n") == 1
    for words in (["keys", folder], ["keys"], [], ["keyz"], ["keys", folder, "--nodes", "many"]):
        with pytest.raises(SystemExit, match="2"):
            cli.main(words)
