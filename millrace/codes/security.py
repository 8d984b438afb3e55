"""7xxx: security."""

from millrace.codes.code import Branch, Code

CODES: tuple[Code, ...] = (
    Code(
        "MR-7020",
        "ZooKeeper refuses the login",
        "The user or the password is wrong, the ensemble has no SASL login for clients, or it accepts only clients that"
        " log in.",
        "Compare MILLRACE_ZOOKEEPER_USER and the secret that MILLRACE_ZOOKEEPER_PASSWORD refers to with the section"
        " `Server` of the ensemble's JAAS file. The ensemble also needs"
        " authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider.",
        Branch.EITHER,
    ),
    Code(
        "MR-7021",
        "ZooKeeper's certificate is not trusted",
        "No CA that this process trusts signed the server's certificate.",
        "Set MILLRACE_ZOOKEEPER_TLS_CA to the PEM file of the CA that signed the certificates of the ensemble.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-7022",
        "ZooKeeper's certificate is outdated",
        "The server's certificate has expired, or is not valid yet.",
        "Renew the server's certificate, and check the clocks of the server and of this machine.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-7023",
        "ZooKeeper's certificate is for another host",
        "The certificate does not contain the host name that MILLRACE_ZOOKEEPER names.",
        "Name the server in MILLRACE_ZOOKEEPER as its certificate does. Or set MILLRACE_ZOOKEEPER_TLS=verify-ca, which"
        " checks the CA but not the name.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-7024",
        "ZooKeeper's port does not speak TLS",
        "MILLRACE_ZOOKEEPER names a port for plain text, or the server has no TLS version in common with this process.",
        "Name the secureClientPort of the servers in MILLRACE_ZOOKEEPER. Or, in a network that you trust, unset"
        " MILLRACE_ZOOKEEPER_TLS.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-7025",
        "ZooKeeper's port wants TLS",
        "MILLRACE_ZOOKEEPER names a secureClientPort, and this process does not use TLS.",
        "Set MILLRACE_ZOOKEEPER_TLS=verify-identity, and MILLRACE_ZOOKEEPER_TLS_CA to the CA of the ensemble.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-7026",
        "ZooKeeper refuses the client certificate",
        "The ensemble requires a client certificate and this process has none, or the ensemble does not trust it.",
        "Set MILLRACE_ZOOKEEPER_TLS_CERT and MILLRACE_ZOOKEEPER_TLS_KEY to a certificate that a CA in the ensemble's"
        " ssl.trustStore signed. Or set ssl.clientAuth=none in the ensemble.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-7027",
        "the access to ZooKeeper is not configured correctly",
        "A variable MILLRACE_ZOOKEEPER_… is malformed, contradicts another one, or names a file that can't be used.",
        "Correct the variable that the message names; docs/zookeeper.md describes all of them.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-7028",
        "the login may not do this in ZooKeeper",
        "The ACL of the node does not give this process the permission. Observers may only read.",
        "Run the command with a login in MILLRACE_ZOOKEEPER_WRITERS. If this process should have the permission, list"
        " the ACLs with `millrace cluster secure --check` as a writer, and correct them with `millrace cluster secure`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-7029",
        "ZooKeeper does not know an identity",
        "An identity of MILLRACE_ZOOKEEPER_WRITERS or MILLRACE_ZOOKEEPER_READERS has a scheme that the ensemble does not"
        " support, or is malformed for its scheme.",
        "Use sasl:USER, or x509:SUBJECT with the subject as `openssl x509 -noout -subject -nameopt RFC2253` prints it."
        " The ensemble needs the authProvider of the scheme.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-7030",
        "nodes in ZooKeeper have another ACL than configured",
        "They were created by a process without the login or with another configuration, or by another program.",
        "Set their ACLs with `millrace cluster secure`. Then start every process of the cluster with the same"
        " MILLRACE_ZOOKEEPER_WRITERS and MILLRACE_ZOOKEEPER_READERS.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-7031",
        "running processes do not use the configured ACL",
        "They created their nodes with another ACL, so `millrace cluster secure` could lock them out.",
        "Restart the processes that the message names with the same MILLRACE_ZOOKEEPER_… variables as this command,"
        " then repeat it.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-7032",
        "programs may not give secrets here",
        "A reference to a secret names a program (`exec:…`), and the process does not run programs for documents.",
        "Set MILLRACE_SECRETS_EXEC=allow in the environment of every process that logs in, or use `env:NAME` or"
        " `file:/path`. Then every writer of documents can run programs as this user.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-7033",
        "the program of a secret failed",
        "The program that a reference names (`exec:…`) can't be run, ended with an error, or took too long.",
        "Run the command of the message on this host as the user of the process. It must print the secret, and nothing"
        " else, within 10 seconds and exit with 0. Its standard error is discarded.",
        Branch.EITHER,
    ),
)
