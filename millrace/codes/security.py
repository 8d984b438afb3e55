"""7xxx: security. 700x logins and TLS to Kafka, 701x rights on Kafka and the registry, 702x and later ZooKeeper."""

from millrace.codes.code import Branch, Code

# The error of a task or command begins its fix with the one command that is missing.
_GRANT = (
    "Grant it with `kafka-acls.sh`: `millrace acl print TASK` prints the commands for all rights. Then `millrace task resume"
    " TASK`."
)

CODES: tuple[Code, ...] = (
    Code(
        "MR-7001",
        "Kafka refuses the login",
        "User, password or token is wrong, or was changed on the brokers.",
        "Correct `sasl` of the task's `kafka`, or the secret that it refers to. The secret is read again at each try.",
        Branch.RETRIES,
    ),
    Code(
        "MR-7002",
        "the broker's certificate is not trusted",
        "The CA that signed it is not the one in `tls_ca`, or the certificate has expired.",
        "Name the CA of the brokers as `tls_ca` of the task's `kafka`. If the certificate has expired, renew it on the"
        " broker. The file is read again at each try.",
        Branch.RETRIES,
    ),
    Code(
        "MR-7003",
        "the broker's certificate is for another name",
        "The certificate is trusted, but does not contain the host name of `bootstrap`, or the one that the broker"
        " advertises.",
        "Use a host name of the certificate in `bootstrap` and in advertised.listeners, or set `tls: verify-ca`, which"
        " does not check the name.",
        Branch.RETRIES,
    ),
    Code(
        "MR-7004",
        "one side speaks TLS, the other does not",
        "`bootstrap` names a listener of another security protocol than `tls` asks for.",
        "Name the port of the right listener in `bootstrap`, or correct `tls` of the task's `kafka`.",
        Branch.RETRIES,
    ),
    Code(
        "MR-7005",
        "the broker refuses the client's certificate",
        "The listener requires a certificate (ssl.client.auth=required), and none is given, or its CA is not in the"
        " broker's trust store, or it has expired.",
        "Give `tls_cert` and `tls_key` in the task's `kafka`, signed by a CA that the brokers trust.",
        Branch.RETRIES,
    ),
    Code(
        "MR-7006",
        "the listener does not offer this login",
        "`sasl.mechanism` is not in sasl.enabled.mechanisms of the listener, the listener requires a login and `sasl` is"
        " missing, or it takes none.",
        "Set `sasl` of the task's `kafka` to a mechanism that the message names, or name the port of another listener in"
        " `bootstrap`.",
        Branch.RETRIES,
    ),
    Code(
        "MR-7007",
        "a certificate or key can't be used",
        "A file of `tls_ca`, `tls_cert` or `tls_key`, or of an option of these names, is missing, unreadable or of another form, or key and certificate do"
        " not belong together. Keys are PEM in PKCS #8: they begin with BEGIN PRIVATE KEY.",
        "Correct the file that the message names. `openssl pkcs8 -topk8 -nodes -in OLD -out NEW` converts a key. Then"
        " `millrace task resume TASK`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-7010",
        "a right on the topic is missing",
        "Kafka's ACLs do not allow the task's user what it needs on the topic.",
        _GRANT,
        Branch.OPERATOR,
    ),
    Code(
        "MR-7011",
        "a right on the transactional ID is missing",
        "Kafka's ACLs do not allow the task's user to write with the transactional ID of the topic.",
        _GRANT,
        Branch.OPERATOR,
    ),
    Code(
        "MR-7012",
        "a right on the Kafka cluster is missing",
        "Kafka's ACLs do not allow the task's user an operation on the whole cluster. Millrace needs none, except for"
        " brokers before 2.8, where idempotent producers need IdempotentWrite.",
        _GRANT,
        Branch.OPERATOR,
    ),
    Code(
        "MR-7013",
        "a right on the consumer group is missing",
        "Kafka's ACLs do not allow the user to use the consumer group.",
        _GRANT,
        Branch.OPERATOR,
    ),
    Code(
        "MR-7014",
        "the schema registry refuses the login",
        "User, password or token of the task's `registry` is wrong or missing, or was changed on the registry.",
        "Correct `user` and `password`, or `token`, of the task's `registry`, or the secret that it refers to. The secret"
        " is read again for each request.",
        Branch.RETRIES,
    ),
    Code(
        "MR-7015",
        "the registry's certificate is not trusted",
        "The CA that signed it is not the one in `tls_ca` of the task's `registry`, it is for another host name, or it has"
        " expired. Or the registry does not speak TLS.",
        "Name the CA as `tls_ca` of the task's `registry`, and a host name of the certificate in `url`.",
        Branch.RETRIES,
    ),
    Code(
        "MR-7016",
        "the address of the registry is not protected",
        "`millrace registry` was told to listen on an address that other machines can reach, without TLS or without a"
        " token. A client could register schemas, and read those of every table.",
        "Give `--tls-cert`, `--tls-key` and `--token env:NAME` (or `file:/PATH`), or listen on 127.0.0.1. In a network that"
        " you trust, `--insecure` serves without them.",
        Branch.OPERATOR,
    ),
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
