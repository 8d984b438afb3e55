"""The built-in registry serves TLS and requires a token; clients send it as Confluent's do."""

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from millrace.cli import run
from millrace.cli.exits import ExitCode
from millrace.deploy.servers import KafkaServer
from millrace.deploy.servers.tls import Authority, tls_files
from millrace.errors import Fatal, Retryable
from millrace.registry.client import RegistryClient
from millrace.registry.door import Door
from millrace.schemas.documents import Registry, SecretPlace, SecretReference
from millrace.schemas.record.control import DDL_SCHEMA
from tests.kit.registry_process import started

TOKEN = "canary-of-the-registry"


@dataclass(frozen=True)
class Secured:
    """A registry with TLS and a token."""

    url: str
    authority: Path
    folder: Path

    def registry(self, token: str, *, user: str = "", authority: Path | None = None) -> Registry:
        """Its address, with a login that has this secret."""
        path = self.folder / f"sent-{len(list(self.folder.iterdir()))}"
        path.write_text(token)
        reference = SecretReference(SecretPlace.FILE, str(path))
        return Registry(self.url, str(authority or self.authority), user, reference)


@pytest.fixture(scope="module")
def secured(kafka: KafkaServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """The process, on loopback."""
    folder = tmp_path_factory.mktemp("registry")
    files = Authority.make(folder).issue("r", common_name="r", alternatives="IP:127.0.0.1")
    (folder / "token").write_text(TOKEN)
    tls = ("--tls-cert", str(files.certificate), "--tls-key", str(files.key))
    token = ("--token", f"file:{folder / 'token'}")
    with started(kafka, "_secured_schemas", *tls, *token) as (url, _):
        yield Secured(url, files.authority, folder)


@pytest.mark.parametrize("user", ["", "millrace"])
def test_client_logs_in_with_token_or_user(secured: Secured, user: str) -> None:
    """As a bearer token, or as the password of any user; the certificate is verified."""
    assert secured.url.startswith("https://127.0.0.1:")
    client = RegistryClient(secured.registry(TOKEN, user=user))
    known = client.register("logged-in", DDL_SCHEMA.text)
    assert RegistryClient(secured.registry(TOKEN, user=user)).schema_by_id(known) == DDL_SCHEMA.text


def test_registry_refuses_strangers(secured: Secured) -> None:
    """A wrong token, none at all, and a certificate of an unknown CA. No error contains a token."""
    foreign = tls_files()
    assert foreign is not None
    refused = {
        "MR-7014": [secured.registry("wrong"), Registry(secured.url, str(secured.authority))],
        "MR-7015": [secured.registry(TOKEN, authority=foreign.authority)],
        "MR-7007": [secured.registry(TOKEN, authority=secured.folder / "none.pem")],
    }
    for code, registries in refused.items():
        for registry in registries:
            with pytest.raises((Retryable, Fatal)) as raised:
                RegistryClient(registry).register("s", DDL_SCHEMA.text)
            assert raised.value.code == code
            assert TOKEN not in str(raised.value)


def test_rotated_token_takes_effect_without_a_restart(secured: Secured) -> None:
    """On the registry and in a client that lives on."""
    registry = secured.registry(TOKEN)
    assert registry.secret is not None
    client = RegistryClient(registry)
    number = client.register("rotated", DDL_SCHEMA.text)
    (secured.folder / "token").write_text("rotated")
    try:
        with pytest.raises(Retryable) as raised:
            client.schema_by_id(number)
        assert raised.value.code == "MR-7014"
        Path(registry.secret.name).write_text("rotated")
        assert client.schema_by_id(number)
    finally:
        (secured.folder / "token").write_text(TOKEN)


def test_refusal_has_the_form_of_confluents(secured: Secured) -> None:
    """HTTP 401 with error code 40101 and a challenge, on every path."""
    context = ssl.create_default_context(cafile=secured.authority)
    for path in ("/subjects", "/schemas/ids/1"):
        with pytest.raises(urllib.error.HTTPError) as raised:
            urllib.request.urlopen(secured.url + path, context=context)
        with raised.value as answer:
            assert answer.status == 401
            assert "Basic" in answer.headers["www-authenticate"]
            assert json.load(answer)["error_code"] == 40101


@pytest.mark.parametrize("given", [[], ["--token", "env:HOME"], ["--tls-cert", "a.pem"]])
def test_unprotected_registry_is_refused(
    given: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Other machines could read and register schemas. Nothing is listened on."""
    command = ["registry", "--kafka", "127.0.0.1:1", "--host", "registry1", "--port", "0"]
    assert run([*command, *given]) == ExitCode.OPERATOR
    assert "MR-7016" in capsys.readouterr().err


def test_operator_may_insist_on_an_open_registry() -> None:
    """`--insecure` is for a trusted network."""
    Door().check_exposure("registry1", is_accepted=True)
    for host in ("localhost", "127.0.0.1", "::1"):
        Door().check_exposure(host, is_accepted=False)


def test_token_in_the_argument_list_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Every user of the machine could read it; the error does not repeat it."""
    assert run(["registry", "--kafka", "127.0.0.1:1", "--token", TOKEN]) == 2
    assert TOKEN not in capsys.readouterr().err
