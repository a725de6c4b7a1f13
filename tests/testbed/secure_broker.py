"""A broker whose listeners want TLS or a password, and which has ACLs.

In: a folder. Out: a Broker with four listeners more; who has no ACL may do nothing.
"""

from __future__ import annotations

from pathlib import Path

from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from tests.testbed.broker import Broker
from tests.testbed.certificates import Authority, Identity
from tests.testbed.kafka import TIMEOUT
from tests.testbed.ports import LOOPBACK, Address, free_port

PROTOCOLS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
# The worst a password may hold for whoever splits, unquotes or trims it.
PASSWORD = "p,a=ss  w'o\"r\\d;{}%s $1"
PLAIN_USER, SCRAM_USER = "plain", "scram, user=1"


class SecureBroker(Broker):
    """A Broker with the listeners of PROTOCOLS too: SSL wants a client's certificate, SASL_* a password.

    PLAIN_USER (mechanism PLAIN) and SCRAM_USER (SCRAM-SHA-512) have PASSWORD. Whoever comes by PLAINTEXT may do
    everything, the others what allow() has allowed them.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.authority = Authority(folder.with_name(f"{folder.name}-certificates"), "authority")
        self.client: Identity = self.authority.sign("client", password=PASSWORD)
        self._server = self.authority.sign("server").both(self.authority.folder)
        self._listeners = {protocol: Address(LOOPBACK, free_port()) for protocol in PROTOCOLS}

    def bootstrap_of(self, protocol: str) -> str:
        """Where the listener of a security protocol is."""
        return str(self._listeners[protocol])

    def start(self, timeout: float = 90) -> Broker:
        """As a Broker's; and SCRAM_USER is there then."""
        super().start(timeout)
        self.set_password(SCRAM_USER, PASSWORD)
        return self

    def set_password(self, user: str, password: str) -> None:
        """Make a user of SCRAM-SHA-512, or give it another password."""
        admin = self.admin()
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(user, info, password.encode())
        admin.alter_user_scram_credentials([change])[user].result(TIMEOUT)

    def allow(self, user: str, resource: ResourceType, name: str, *operations: AclOperation) -> None:
        """Let a user do that with a topic or a group."""
        admin = self.admin()
        for future in admin.create_acls([_acl(user, resource, name, o) for o in operations]).values():
            future.result(TIMEOUT)

    def forbid(self, user: str, resource: ResourceType, name: str) -> None:
        """Take back all that allow() has allowed a user with it."""
        admin = self.admin()
        every = _filter(user, resource, name)
        admin.delete_acls([every])[every].result(TIMEOUT)

    def _cluster(self) -> dict[str, str | int]:
        common = self._common() | super()._cluster()
        more = [f"{protocol}://{address}" for protocol, address in self._listeners.items()]
        names = ",".join(f"{protocol}:{protocol}" for protocol in PROTOCOLS)
        protocols = f"{common['listener.security.protocol.map']},{names}"
        return {
            **super()._cluster(),
            "listeners": ",".join([str(common["listeners"]), *more]),
            "advertised.listeners": ",".join([str(common["advertised.listeners"]), *more]),
            "listener.security.protocol.map": protocols,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._server),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.certificate),
            "listener.name.ssl.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            **_logins(),
        }


def _acl(user: str, resource: ResourceType, name: str, operation: AclOperation) -> AclBinding:
    return AclBinding(
        resource, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW
    )


def _filter(user: str, resource: ResourceType, name: str) -> AclBindingFilter:
    any_operation, any_permission = AclOperation.ANY, AclPermissionType.ANY
    literal, host = ResourcePatternType.LITERAL, "*"
    return AclBindingFilter(resource, name, literal, f"User:{user}", host, any_operation, any_permission)


def _logins() -> dict[str, str]:
    modules = {
        "plain": f'plain.PlainLoginModule required user_{PLAIN_USER}="{_in_jaas(PASSWORD)}"',
        "scram-sha-512": "scram.ScramLoginModule required",
    }
    return {
        f"listener.name.{protocol.lower()}.{mechanism}.sasl.jaas.config": f"org.apache.kafka.common.security.{module};"
        for protocol in PROTOCOLS
        if protocol.startswith("SASL")
        for mechanism, module in modules.items()
    }


def _in_jaas(password: str) -> str:
    """A password as JAAS has it within quotes, which is a value in a file of Java properties."""
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    return quoted.replace("\\", "\\\\")
