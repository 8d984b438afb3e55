"""``millrace cluster show | raise-generation | secure``: the generation, the high bits of all epochs, and the ACLs."""

from typing import Annotated

import typer

from millrace.cli.control import control
from millrace.cli.exits import Finding
from millrace.errors import Fatal
from millrace.wording import counted
from millrace.zk.client.access import Access, Policy
from millrace.zk.ensemble import Ensemble
from millrace.zk.lease.epoch import generation_of, raise_generation
from millrace.zk.tree.acls import acl_text, differing, not_secured, read_acls
from millrace.zk.tree.acls import secure as secure_nodes
from millrace.zk.tree.paths import ROOT

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Show the generation; raise it after ZooKeeper was rebuilt; set the ACL of every node.",
)


@app.command()
def show() -> None:
    """Print the cluster's generation."""
    with control() as now:
        print(f"cluster {now.tree.cluster} generation {generation_of(now.session, now.tree)}")


@app.command("raise-generation")
def raise_generation_command() -> None:
    """After ZooKeeper was rebuilt or restored: make new epochs greater than all earlier ones.

    If ZooKeeper lost all data, the generation is 1 again: raise it as often as it had been raised before, and once
    more. First make sure that no other cluster runs the same tasks.
    """
    with control() as now:
        print(f"cluster {now.tree.cluster} generation {raise_generation(now.session, now.tree)}")


DryRun = Annotated[
    bool, typer.Option("--dry-run", help="List the nodes that would change, and their ACLs.")
]
Check = Annotated[
    bool, typer.Option("--check", help="List them, and exit with 1 if there is one. Reads only.")
]
Print = Annotated[
    bool, typer.Option("--print", help="Print the commands for ZooKeeper's zkCli.sh instead.")
]


@app.command()
def secure(*, dry_run: DryRun = False, check: Check = False, print_only: Print = False) -> None:
    """Set the configured ACL on every node of the cluster.

    The ACL comes from MILLRACE_ZOOKEEPER_USER, _WRITERS and _READERS. Start all processes with the same variables
    first: a process without them is refused, and named. Tasks continue meanwhile. The command may be repeated.
    """
    ensemble = Ensemble.from_environment()
    policy = ensemble.access.policy
    if policy is None:
        message = "MILLRACE_ZOOKEEPER_USER and _WRITERS are not set: no login may be preferred"
        raise Fatal("MR-7027", message)
    if print_only:
        print(f"setAcl {ROOT} {acl_text(policy.acl)}")
        print(f"setAcl -R {ensemble.tree.root} {acl_text(policy.acl)}")
        return
    if not (dry_run or check):
        _check_own_login(ensemble.access, policy)
    with control() as now:
        if not (dry_run or check):
            changed = secure_nodes(now.session, now.tree, policy)
            print(f"cluster {now.tree.cluster}: {counted(changed, 'node')} changed")
            return
        wrong = differing(read_acls(now.session, now.tree), policy)
    for node in wrong:
        print(node)
    if wrong and check:
        raise Finding(not_secured(wrong))


def _check_own_login(access: Access, policy: Policy) -> None:
    """Fatal MR-7027 when this process would lock itself out."""
    login = access.login
    has_certificate = access.tls is not None and bool(access.tls.certificate_path)
    if login and not has_certificate and login.identity not in policy.writers:
        raise Fatal(
            "MR-7027",
            f"MILLRACE_ZOOKEEPER_WRITERS does not contain {login.identity}, the login of this process",
        )
