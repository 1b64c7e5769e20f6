"""A real Kafka broker (KRaft, one node) on loopback; `maven` has its libraries.

Ports, certificates, users and data are new for each broker. `plain` is the door of the tests' administrator, who may do
anything there; events go through `sasl` (SCRAM over TLS), `tls` (certificates) or `behind` (SCRAM, in clear): whoever
comes there is sent on to `front`, where a test may put a proxy. A session starts one broker, and its tests take topics
and users with names of their own.
"""

from __future__ import annotations

import base64
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import trustme
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives import serialization

from shipper_demo.ports import free_port
from tests.backends.maven import JVM, KAFKA
from tests.backends.recipe import Unavailable
from tests.programs import Running

__all__ = ["Kafka", "Unavailable", "running"]

PATIENCE = 90.0

_JAVA = (*JVM, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
WRITING = (AclOperation.WRITE, AclOperation.DESCRIBE)


@dataclass
class Kafka:
    """A running broker; the methods act as its administrator."""

    root: Path = field(repr=False)
    libraries: Path = field(repr=False)
    plain: str
    sasl: str
    tls: str
    behind: str
    front: str
    ca: Path
    authority: trustme.CA = field(repr=False)
    process: Running | None = field(default=None, repr=False)

    # -- its life ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start it (again, with the data that it had), and wait until it answers."""
        command = _java(self.libraries, "256m", "kafka.Kafka", self.root / "server.properties")
        self.process = Running(command, cwd=self.root)
        self.process.wait(self._answers, PATIENCE)

    def _answers(self) -> bool:
        try:
            self._admin.list_topics(timeout=2)
        except KafkaException:
            return False
        return True

    def kill(self) -> None:
        """As a power cut of the process alone: what it wrote is with the system."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()

    @contextmanager
    def away(self) -> Iterator[None]:
        """Killed, for as long as the block runs."""
        self.kill()
        try:
            yield
        finally:
            self.start()

    @cached_property
    def _admin(self) -> AdminClient:
        """Kept: what it was asked is given up when it is forgotten."""
        return AdminClient({"bootstrap.servers": self.plain, "log_level": 0})

    @staticmethod
    def connections(address: str, pid: int) -> list[str]:
        """Those of a process to an address, as the system lists them."""
        host, _, port = address.rpartition(":")
        remote = "".join(f"{int(part):02X}" for part in reversed(host.split("."))) + f":{int(port):04X}"
        rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
        links = set()
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):  # closed meanwhile
                links.add(str(descriptor.readlink()))
        return [row[1] for row in rows if row[2] == remote and f"socket:[{row[9]}]" in links]

    # -- topics and users ----------------------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, **settings: str) -> str:
        """Settings are those of the topic, with _ for a dot."""
        config = {key.replace("_", "."): value for key, value in settings.items()}
        self._done(self._admin.create_topics([NewTopic(name, partitions, 1, config=config)]))
        return name

    def create_user(self, name: str, *, topics: str = "") -> tuple[str, str]:
        """A user that may write to topics that begin so; returns user name and password."""
        password = secrets.token_urlsafe(18)
        upsertion = UserScramCredentialUpsertion(
            name, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), password.encode()
        )
        self._done(self._admin.alter_user_scram_credentials([upsertion]))
        self.permit(f"User:{name}", topics)
        return name, password

    def permit(self, principal: str, topics: str, operations: Sequence[AclOperation] = WRITING) -> None:
        """Let somebody write to topics that begin so."""
        rules = [
            AclBinding(
                ResourceType.TOPIC,
                topics or "*",
                ResourcePatternType.PREFIXED if topics else ResourcePatternType.LITERAL,
                principal,
                "*",
                operation,
                AclPermissionType.ALLOW,
            )
            for operation in operations
        ]
        self._done(self._admin.create_acls(rules))

    def delete_user(self, name: str) -> None:
        """When this returns, nobody can log in as this user any more."""
        self._done(
            self._admin.alter_user_scram_credentials([UserScramCredentialDeletion(name, ScramMechanism.SCRAM_SHA_512)])
        )

    def users(self) -> set[str]:
        """Who can log in."""
        return set(self._admin.describe_user_scram_credentials().result(30))

    @staticmethod
    def _done(futures: Mapping[object, object]) -> None:
        for future in futures.values():
            future.result(30)  # type: ignore[attr-defined]

    # -- records -------------------------------------------------------------------------------------------------------

    def count(self, topic: str) -> int:
        """How many records a topic has."""
        with closing(self._consumer()) as consumer:
            return sum(high - low for _, low, high in _ranges(consumer, topic))

    def records(self, topic: str) -> list[Message]:
        """All records of a topic, by partition and offset."""
        found: list[Message] = []
        with closing(self._consumer()) as consumer:
            for partition, low, high in _ranges(consumer, topic):
                if low < high:
                    consumer.assign([TopicPartition(topic, partition, low)])
                    found += _read(consumer, high, high - low)
        return found

    def _consumer(self) -> Consumer:
        settings = {"bootstrap.servers": self.plain, "group.id": secrets.token_hex(8), "enable.auto.commit": False}
        return Consumer({**settings, "log_level": 0})


def _ranges(consumer: Consumer, topic: str) -> list[tuple[int, int, int]]:
    """Each partition, with its first offset and the next one."""
    partitions = sorted(consumer.list_topics(topic, timeout=60).topics[topic].partitions)
    places = [TopicPartition(topic, partition) for partition in partitions]
    return [(place.partition, *consumer.get_watermark_offsets(place, timeout=60)) for place in places]


def _read(consumer: Consumer, high: int, most: int) -> list[Message]:
    """What is below an offset; there may be fewer records than offsets."""
    found: list[Message] = []
    deadline = time.monotonic() + 30
    while not found or found[-1].offset() < high - 1:
        came = consumer.consume(most - len(found), timeout=1)
        found += [message for message in came if message.error() is None]
        assert time.monotonic() < deadline, "the broker does not give its records"
    return found


@contextmanager
def running() -> Iterator[Kafka]:
    """Start a broker, and stop it; raises Unavailable where there can be none."""
    libraries = KAFKA.made()
    root = Path(tempfile.mkdtemp(prefix="kafka-"))
    broker: Kafka | None = None
    try:
        broker = _configured(root, libraries)
        broker.start()
        yield broker
    finally:
        if broker is not None:
            broker.kill()
        shutil.rmtree(root, ignore_errors=True)


def _java(libraries: Path, heap: str, *arguments: object) -> list[str]:
    return ["java", f"-Xmx{heap}", *_JAVA, "-cp", f"{libraries}/*", *map(str, arguments)]


def _configured(root: Path, libraries: Path) -> Kafka:
    """Its directory, with what `server.properties` names, formatted."""
    authority = trustme.CA()
    node = authority.issue_cert("localhost", "127.0.0.1", common_name="node")
    authority.cert_pem.write_to_path(root / "ca.pem")
    (root / "node.pem").write_bytes(
        _pkcs8(node.private_key_pem.bytes()) + b"".join(pem.bytes() for pem in node.cert_chain_pems)
    )
    ports = [free_port() for _ in range(6)]
    plain, sasl, tls, behind, front, controller = (f"127.0.0.1:{port}" for port in ports)
    listeners = f"PLAINTEXT://{plain},SASL_SSL://{sasl},SSL://{tls},PROXIED://"
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{controller}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listeners": f"{listeners}{behind},CONTROLLER://{controller}",
        "advertised.listeners": f"{listeners}{front}",
        "listener.security.protocol.map": (
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL,PROXIED:SASL_PLAINTEXT"
        ),
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": login,
        "listener.name.proxied.scram-sha-512.sasl.jaas.config": login,
        "listener.name.ssl.ssl.client.auth": "required",
        "listener.name.ssl.ssl.principal.mapping.rules": "RULE:^.*$/certified/",  # the user of any certificate
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(root / "node.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(root / "ca.pem"),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",  # whoever comes through PLAINTEXT
        "auto.create.topics.enable": "false",
        "log.dirs": str(root / "data"),
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "group.initial.rebalance.delay.ms": "0",
        "log.cleaner.dedupe.buffer.size": str(8 << 20),
        "connection.failed.authentication.delay.ms": "100",
    }
    properties = root / "server.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    cluster = "k" + base64.urlsafe_b64encode(os.urandom(16)).decode()[1:22]  # a dash would be an option
    formatting = ("kafka.tools.StorageTool", "format", "-t", cluster, "-c", properties)
    subprocess.run(_java(libraries, "128m", *formatting), check=True, capture_output=True, timeout=PATIENCE)
    return Kafka(root, libraries, plain, sasl, tls, behind, front, root / "ca.pem", authority)


def _pkcs8(key: bytes) -> bytes:
    """The one form of a key that Kafka reads."""
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return serialization.load_pem_private_key(key, None).private_bytes(*form)
