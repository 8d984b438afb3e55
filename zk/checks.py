"""Checks the ensemble for `millrace check`: every server answers, and the documents can be read. Writes nothing."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

from millrace import __version__
from millrace.checks.requirement import Area, Requirement, Subject
from millrace.errors import Fatal, MillraceError
from millrace.wording import counted
from millrace.zk.client.access import Policy
from millrace.zk.ensemble import Ensemble
from millrace.zk.placement.assignment import listed
from millrace.zk.placement.fleet import BEFORE_VERSIONS, read_versions
from millrace.zk.tree.acls import NodeAcl, differing, not_secured, read_acls
from millrace.zk.tree.entries import UnreadableEntry
from millrace.zk.tree.store import Store

CONNECT_S = 5.0


def check_ensemble(ensemble: Ensemble) -> Iterator[Requirement]:
    """The requirements of every server, of the quorum and of the documents."""
    servers = ensemble.servers
    with ThreadPoolExecutor(max_workers=len(servers), thread_name_prefix="check") as pool:
        errors = dict(
            zip(servers, pool.map(lambda server: _ask(ensemble, server), servers), strict=True)
        )
    yield judge_servers(Subject(Area.ZOOKEEPER, "ensemble"), errors)
    if not all(errors.values()):
        yield from _documents(ensemble)


def judge_servers(subject: Subject, errors: dict[str, str]) -> Requirement:
    """MR-4169 if a server does not serve, MR-4001 if none does. A server without a quorum serves nothing."""
    silent = {server: why for server, why in errors.items() if why}
    found = f"{len(errors) - len(silent)} of {counted(len(errors), 'server')} answer"
    if not silent:
        return subject.ok("servers", found)
    found = "; ".join([found, *(f"{server}: {why}" for server, why in silent.items())])
    if len(silent) == len(errors):
        return subject.fail("MR-4001", "servers", found=found, wanted="a majority")
    return subject.warn("MR-4169", "servers", found=found, wanted="all of them")


def judge_timeout(subject: Subject, asked_s: float, granted_s: float) -> Requirement:
    """MR-4170 if the ensemble has other bounds than the session timeout."""
    what = "session timeout"
    if granted_s and granted_s != asked_s:
        wanted = f"{asked_s:g} s (MILLRACE_ZOOKEEPER_TIMEOUT_S)"
        return subject.warn("MR-4170", what, found=f"{granted_s:g} s", wanted=wanted)
    return subject.ok(what, f"{granted_s:g} s" if granted_s else "unknown")


def _ask(ensemble: Ensemble, server: str) -> str:
    """Why the server can not be read; empty if it can."""
    opened = replace(ensemble, hosts=server)
    try:
        with closing(opened.open(connect_timeout_s=CONNECT_S)) as session:
            session.children("/")
    except MillraceError as error:
        return error.message
    return ""


def _documents(ensemble: Ensemble) -> Iterator[Requirement]:
    subject = Subject(Area.ZOOKEEPER, f"cluster {ensemble.tree.cluster}")
    with closing(ensemble.open(connect_timeout_s=CONNECT_S)) as session:
        yield judge_timeout(
            Subject(Area.ZOOKEEPER, "ensemble"), session.timeout_s, session.granted_timeout_s
        )
        if (policy := ensemble.access.policy) is not None:
            yield judge_acls(subject, read_acls(session, ensemble.tree), policy)
        yield judge_versions(subject, read_versions(session, ensemble.tree))
        store = Store(session, ensemble.tree)
        for kind, entries in (("sets", store.sets()), ("tasks", store.tasks())):
            yield from judge_documents(subject, kind, entries)
        for name in store.sets():
            try:
                store.directives(name)
            except Fatal as error:
                yield subject.error(f"directives of {name}", error)


def judge_versions(subject: Subject, versions: Mapping[str, str]) -> Requirement:
    """MR-4192 if the processes of the cluster, with this one, have several versions. ``versions`` by name."""
    names: defaultdict[str, list[str]] = defaultdict(list)
    for name, version in sorted({**versions, "this command": __version__}.items()):
        names[version or BEFORE_VERSIONS].append(name)
    found = "; ".join(f"{version}: {listed(its)}" for version, its in sorted(names.items()))
    if len(names) > 1:
        return subject.warn("MR-4192", "versions", found=found, wanted="one")
    return subject.ok("versions", found)


def judge_acls(subject: Subject, nodes: Iterable[NodeAcl], policy: Policy) -> Requirement:
    """MR-7030 if a node has another ACL than the environment of this process asks for."""
    known = list(nodes)
    wrong = differing(known, policy)
    if wrong:
        return subject.warn("MR-7030", "ACLs", found=not_secured(wrong).message)
    return subject.ok("ACLs", f"{counted(len(known), 'node')} as configured")


def judge_documents(
    subject: Subject, kind: str, entries: Mapping[str, object]
) -> Iterator[Requirement]:
    """The error of each document that can't be read."""
    bad = {name: entry for name, entry in entries.items() if isinstance(entry, UnreadableEntry)}
    for name, entry in bad.items():
        yield subject.error(f"{kind[:-1]} {name}", entry.error)
    yield subject.ok(kind, f"{len(entries) - len(bad)} can be read")
