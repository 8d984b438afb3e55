"""TLS, logins and ACLs against a real ZooKeeper, checked with a raw client."""

import contextlib
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import NoAuthError

from millrace.cli import run
from millrace.cli.exits import ExitCode
from millrace.deploy.servers import ZooKeeperServer
from millrace.deploy.servers.tls import TlsFiles
from millrace.errors import Fatal
from millrace.schemas.status import TaskState
from millrace.zk.client.session import CONNECT_TIMEOUT_S
from millrace.zk.ensemble import Ensemble
from millrace.zk.tree.paths import ROOT
from millrace.zk.tree.store import Store
from millrace.zk.view import read_cluster, views
from tests.kit import canaries
from tests.kit.certificates import Authority
from tests.kit.control.control import a_capture, a_set, ensemble_of
from tests.kit.control.process import launched
from tests.kit.control.secured import PASSWORDS, READER, WRITER, SecuredZooKeeper, acls
from tests.kit.forked import fork
from tests.kit.waiting import PATIENCE_S, eventually

Shell = Callable[..., str]


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    """Runs a command with these variables; returns standard output and error."""

    def call(environment: Mapping[str, str], *words: str, exit_code: int = 0) -> str:
        capsys.readouterr()
        with monkeypatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            code = run(list(words))
        output = capsys.readouterr()
        assert code == exit_code, output
        return output.out + output.err

    return call


def _fill(ensemble: Ensemble) -> None:
    with ensemble.session() as session:
        store = Store(session, ensemble.tree)
        store.create_set(a_set())
        store.create_task(a_capture())


@contextmanager
def _running(
    ensemble: Ensemble, environment: Mapping[str, str], folder: Path
) -> Iterator[Callable[[], int]]:
    """A scheduler and a worker as processes; the function returns the epoch of the running task."""
    with (
        launched(ensemble, "scheduler", name="s1", folder=folder, environment=environment),
        launched(ensemble, "worker", name="w1", folder=folder, environment=environment),
        ensemble.session() as session,
    ):

        def epoch() -> int:
            (view,) = views(read_cluster(session, ensemble.tree))
            return view.report.epoch if view.report.state is TaskState.RUNNING else 0

        eventually(epoch, what="the task runs")
        yield epoch


@contextmanager
def _watching(environment: Mapping[str, str]) -> Iterator[None]:
    """`millrace status -w` as a program: /proc shows its arguments and its environment."""
    command = (sys.executable, "-m", "millrace", "status", "-w", "--json")
    whole = {**os.environ, **environment}
    with subprocess.Popen(command, env=whole, stdout=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.kill()


@pytest.mark.guarantee("access")
def test_no_node_of_a_secured_cluster_is_open(secured: SecuredZooKeeper, tmp_path: Path) -> None:
    """A task runs under TLS and SASL; a stranger can neither read nor write any of its nodes."""
    cluster = secured.new_cluster()
    ensemble = secured.ensemble(cluster)
    root = ensemble.tree.root
    _fill(ensemble)
    with (
        _running(ensemble, secured.environment(cluster), tmp_path),
        _watching(secured.environment(cluster)),
        secured.raw(WRITER, cluster=cluster) as writer,
        secured.raw(cluster=cluster) as stranger,
    ):
        found = acls(writer, root)
        assert ensemble.tree.owner("shop-capture") in found
        assert ensemble.tree.worker("w1") in found
        assert ensemble.tree.leader in found
        wanted = [f"sasl:{WRITER}:31", f"sasl:{READER}:1"]
        assert {tuple(sorted(acl)) for acl in found.values()} == {tuple(sorted(wanted))}
        assert "world:anyone:31" not in acls(writer, ROOT)[ROOT]
        for path in found:
            for attempt in (
                partial(stranger.get, path),
                partial(stranger.set, path, b"x"),
                partial(stranger.create, f"{path}/x", b"x"),
                partial(stranger.get_children, path),
            ):
                with pytest.raises(NoAuthError):
                    attempt()
        with pytest.raises(NoAuthError):
            stranger.delete(ensemble.tree.task("shop-capture"))
        assert canaries.in_processes(PASSWORDS) == []
        assert canaries.in_processes({"address": secured.server.secure_hosts}) != []
    assert "Traceback" not in (tmp_path / "w1.log").read_text()
    assert canaries.in_files(tmp_path, PASSWORDS) == []
    kept = canaries.in_files(secured.server.folder, PASSWORDS)
    assert {found.split()[1] for found in kept} == {str(secured.server.folder / "jaas.conf")}


@pytest.mark.guarantee("access")
def test_observer_reads_and_cannot_write(secured: SecuredZooKeeper, shell: Shell) -> None:
    """Reading commands work; each writing command ends with a code and its fix."""
    cluster = secured.new_cluster()
    _fill(secured.ensemble(cluster))
    observer = secured.environment(cluster, user=READER)
    assert "shop-capture" in shell(observer, "status")
    assert "shop-capture" in shell(observer, "task", "list")
    assert "shop-capture" in shell(observer, "task", "show", "shop-capture")
    assert "shop" in shell(observer, "set", "list")
    assert "127.0.0.1:3306" in shell(
        {**observer, "UNSET": "password"}, "replica", "list", "shop", exit_code=0
    )
    assert "with_tasks" in shell(observer, "relay", "status", "shop")
    assert shell(observer, "cluster", "secure", "--check") == ""
    for words in (
        ("task", "pause", "shop-capture"),
        ("task", "delete", "shop-capture"),
        ("replica", "pin", "shop", "127.0.0.1:3306"),
        ("cluster", "raise-generation"),
    ):
        refused = shell(observer, *words, exit_code=4)
        assert refused.startswith("MR-7028")
        assert "MILLRACE_ZOOKEEPER_WRITERS" in refused
        assert "Traceback" not in refused
    nothing = secured.environment(secured.new_cluster(), user=READER)
    assert shell(nothing, "status", exit_code=4).startswith("MR-7028")


def test_scheduler_that_may_only_read_ends_with_a_code(
    secured: SecuredZooKeeper, tmp_path: Path
) -> None:
    """It prints the code and the fix, and no traceback."""
    cluster = secured.new_cluster()
    _fill(secured.ensemble(cluster))
    environment, log = secured.environment(cluster, user=READER), tmp_path / "log"
    done = fork(run, ["scheduler"], environment=environment, log=log)
    assert done.wait(PATIENCE_S) == ExitCode.OPERATOR
    assert "\nMR-7028" in log.read_text()
    assert "Traceback" not in log.read_text()


@pytest.mark.guarantee("access")
def test_open_tree_is_secured_while_a_task_runs(
    secured: SecuredZooKeeper, shell: Shell, tmp_path: Path
) -> None:
    """The worker keeps its task; a second run changes nothing; the check names what is left."""
    cluster = secured.new_cluster()
    plain = secured.plain(cluster)
    environment = secured.environment(cluster)
    _fill(plain)
    with _running(secured.ensemble(cluster), environment, tmp_path) as epoch:
        before = epoch()
        task = plain.tree.task("shop-capture")
        listed = shell(environment, "cluster", "secure", "--dry-run")
        assert f"{task} world:anyone:cdrwa" in listed
        assert plain.tree.worker("w1") not in listed
        refused = shell(environment, "cluster", "secure", "--check", exit_code=1)
        assert "MR-7030" in refused
        changed = shell(environment, "cluster", "secure")
        assert int(changed.split()[2]) == len(listed.splitlines())
        assert "0 nodes changed" in shell(environment, "cluster", "secure")
        assert shell(environment, "cluster", "secure", "--check") == ""
        assert epoch() == before
        with secured.raw(WRITER, cluster=cluster) as writer:
            found = acls(writer, plain.tree.root)
        assert not [path for path, acl in found.items() if any("world" in one for one in acl)]
        with pytest.raises(Fatal, match="MR-7028"), plain.session():
            pytest.fail("a process without a login reads the tree")


def test_secure_names_processes_without_the_login(secured: SecuredZooKeeper, shell: Shell) -> None:
    """They would be locked out of their own tasks."""
    plain = secured.plain(secured.new_cluster())
    _fill(plain)
    with plain.session() as old:
        old.create(plain.tree.worker("old"), b"", ephemeral=True)
        refused = shell(secured.environment(plain.tree.cluster), "cluster", "secure", exit_code=4)
        assert refused.startswith("MR-7031")
        assert plain.tree.worker("old") in refused
        acl = old.acl(plain.tree.root)
        assert acl is not None
        assert "world:anyone:cdrwa" in map(str, acl[0])


def test_printed_commands_name_the_configured_acl(secured: SecuredZooKeeper, shell: Shell) -> None:
    """An operator can run them with ZooKeeper's own program."""
    cluster = secured.new_cluster()
    printed = shell(secured.environment(cluster), "cluster", "secure", "--print")
    acl = f"sasl:{WRITER}:cdrwa,sasl:{READER}:r"
    assert printed == f"setAcl /millrace {acl}\nsetAcl -R /millrace/{cluster} {acl}\n"


Problem = Callable[[SecuredZooKeeper, Path], dict[str, str]]


def _other_password(_: SecuredZooKeeper, folder: Path) -> dict[str, str]:
    (folder / "other").write_text("wrong-secret")
    return {"MILLRACE_ZOOKEEPER_PASSWORD": f"file:{folder / 'other'}"}


def _unknown_user(_: SecuredZooKeeper, __: Path) -> dict[str, str]:
    return {"MILLRACE_ZOOKEEPER_USER": "nobody"}


def _unset_password(_: SecuredZooKeeper, __: Path) -> dict[str, str]:
    return {"MILLRACE_ZOOKEEPER_PASSWORD": "env:MILLRACE_TEST_UNSET"}


def _other_authority(_: SecuredZooKeeper, folder: Path) -> dict[str, str]:
    return {"MILLRACE_ZOOKEEPER_TLS_CA": str(Authority(folder / "other").path)}


def _other_name(secured: SecuredZooKeeper, _: Path) -> dict[str, str]:
    return {"MILLRACE_ZOOKEEPER": f"127.0.0.1:{secured.server.secure_port}"}


def _plain_port(secured: SecuredZooKeeper, _: Path) -> dict[str, str]:
    return {"MILLRACE_ZOOKEEPER": f"localhost:{secured.server.port}"}


def _no_tls(_: SecuredZooKeeper, __: Path) -> dict[str, str]:
    return {"MILLRACE_ZOOKEEPER_TLS": "", "MILLRACE_ZOOKEEPER_TLS_CA": ""}


def _no_such_scheme(_: SecuredZooKeeper, __: Path) -> dict[str, str]:
    return {"MILLRACE_ZOOKEEPER_WRITERS": "kerberos:millrace"}


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (_other_password, "MR-7020"),
        (_unknown_user, "MR-7020"),
        (_unset_password, "MR-4106"),
        (_other_authority, "MR-7021"),
        (_other_name, "MR-7023"),
        (_plain_port, "MR-7024"),
        (_no_tls, "MR-7025"),
        (_no_such_scheme, "MR-7029"),
    ],
)
def test_refused_access_ends_within_the_connect_timeout(
    secured: SecuredZooKeeper, tmp_path: Path, problem: Problem, code: str
) -> None:
    """Each reason has its code and its fix, and no thread of the client stays."""
    cluster = secured.new_cluster()
    ensemble = secured.ensemble(cluster, **problem(secured, tmp_path))
    threads, before_s = set(threading.enumerate()), time.monotonic()
    with pytest.raises(Fatal) as caught, ensemble.session():
        pytest.fail("a session was opened")
    assert caught.value.code == code
    assert time.monotonic() - before_s < CONNECT_TIMEOUT_S
    assert not any(word in str(caught.value) for word in (*PASSWORDS.values(), "wrong-secret"))
    eventually(lambda: set(threading.enumerate()) <= threads, what="its threads end")


def _started_and_refused(client: KazooClient, start: Any = KazooClient.start_async) -> Any:
    states = list[str]()
    client.add_listener(states.append)
    is_live = start(client)
    eventually(lambda: states[-1:] == [KazooState.LOST])
    return is_live


@pytest.mark.parametrize("is_late", [False, True])
def test_ensemble_without_sasl_refuses_a_login_at_once(
    zookeeper: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    """It answers a login with nothing; the driver alone would send its request forever.

    ``is_late``: our thread waits for the connection only when the login is refused already.
    """
    if is_late:
        monkeypatch.setattr(KazooClient, "start_async", _started_and_refused)
    cluster = ensemble_of(zookeeper.hosts).tree.cluster
    given = {
        "MILLRACE_ZOOKEEPER": zookeeper.hosts,
        "MILLRACE_CLUSTER": cluster,
        "MILLRACE_ZOOKEEPER_USER": WRITER,
        "MILLRACE_ZOOKEEPER_PASSWORD": "env:MILLRACE_TEST_WORD",
    }
    before_s = time.monotonic()
    monkeypatch.setenv("MILLRACE_TEST_WORD", "canary")
    with pytest.raises(Fatal) as caught:
        Ensemble.from_environment(given).open()
    assert caught.value.code == "MR-7020"
    assert "authProvider.sasl" in caught.value.fix
    assert time.monotonic() - before_s < CONNECT_TIMEOUT_S


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredZooKeeper]:
    """A ZooKeeper that requires a client certificate for TLS, and a login without it."""
    folder = tmp_path_factory.mktemp("strict") / "server"
    strict = SecuredZooKeeper(folder, client_auth="need", enforced=True)
    strict.server.start()
    yield strict
    strict.server.kill()


def _with_certificate(strict: SecuredZooKeeper, files: TlsFiles, **more: str) -> Ensemble:
    given = {
        **strict.tls(""),
        "MILLRACE_ZOOKEEPER_TLS_CERT": str(files.certificate),
        "MILLRACE_ZOOKEEPER_TLS_KEY": str(files.key),
        "MILLRACE_ZOOKEEPER_WRITERS": "x509:O=Example,CN=worker1; x509:CN=worker2",
        **more,
    }
    return Ensemble.from_environment({**given, "MILLRACE_CLUSTER": "certificates"})


def test_client_certificate_is_a_login(strict: SecuredZooKeeper) -> None:
    """Two workers with a certificate each share a cluster; the ACL names both subjects."""
    one = _with_certificate(strict, strict.authority.issue("w1", subject="/CN=worker1/O=Example"))
    other = _with_certificate(strict, strict.authority.issue("w2", subject="/CN=worker2"))
    _fill(one)
    with other.session() as session:
        Store(session, other.tree).pause("shop-capture", by="ann")
        found = session.acl(other.tree.task("shop-capture"))
    assert found is not None
    assert sorted(map(str, found[0])) == [
        "x509:CN=worker2:cdrwa",
        "x509:O=Example,CN=worker1:cdrwa",
    ]


def test_missing_and_foreign_client_certificates_are_refused(
    strict: SecuredZooKeeper, tmp_path: Path
) -> None:
    """The server refuses after the handshake, which the driver reports as a timeout."""
    without = Ensemble.from_environment(strict.tls("certificates"))
    foreign = _with_certificate(strict, Authority(tmp_path / "foreign").issue("w1"))
    for ensemble in (without, foreign):
        with pytest.raises(Fatal) as caught:
            ensemble.open()
        assert caught.value.code == "MR-7026"
        assert "MILLRACE_ZOOKEEPER_TLS_CERT" in caught.value.fix


def test_ensemble_that_requires_logins_refuses_a_stranger(strict: SecuredZooKeeper) -> None:
    """The error names the variable of the user."""
    with pytest.raises(Fatal) as caught:
        ensemble_of(strict.server.hosts).open()
    assert caught.value.code == "MR-7020"
    assert "MILLRACE_ZOOKEEPER_USER" in caught.value.fix


def test_expired_certificate_of_a_server_is_named(tmp_path: Path) -> None:
    """A socket with such a certificate is enough: no ZooKeeper gets as far as to answer."""
    authority = Authority(tmp_path / "tls")
    files = authority.issue("server", days=-1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)

    def refuse(listener: socket.socket) -> None:
        while True:
            try:
                accepted, _ = listener.accept()
            except OSError:
                return
            with accepted, contextlib.suppress(OSError):
                context.wrap_socket(accepted, server_side=True)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=refuse, args=(listener,))
        thread.start()
        given = {
            "MILLRACE_ZOOKEEPER": f"localhost:{listener.getsockname()[1]}",
            "MILLRACE_ZOOKEEPER_TLS": "verify-ca",
            "MILLRACE_ZOOKEEPER_TLS_CA": str(authority.path),
        }
        with pytest.raises(Fatal) as caught:
            Ensemble.from_environment(given).open()
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert caught.value.code == "MR-7022"
