"""Kafka, OpenSearch and Elasticsearch, from the repositories that this machine's Maven is set up with."""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from pathlib import Path
from xml.sax.saxutils import escape

from tests.backends.recipe import Recipe, Unavailable

_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_SECONDS = 900.0

JVM = (
    *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
    *("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote"),
)
"""What makes the start of a server cheaper, which is most of what it costs in tests."""

# -- Kafka -------------------------------------------------------------------------------------------------------------

KAFKA_VERSION = "4.1.1"
_LIBRARIES = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION, "jar"),
    ("org.slf4j", "slf4j-simple", "1.7.36", "jar"),
)


def _make_kafka(place: Path) -> None:
    _copy(place, "".join(_dependency(*library) for library in _LIBRARIES))


KAFKA = Recipe("kafka", ("java", "mvn"), lambda: [repr((_LIBRARIES, _COPY)).encode()], _make_kafka)
"""A directory with the classes of a broker."""

# -- OpenSearch --------------------------------------------------------------------------------------------------------

OPENSEARCH_VERSION = "2.19.4"  # the newest for which the security plugin is on Maven Central
_NODE = ("org.opensearch.distribution.integ-test-zip", "opensearch", OPENSEARCH_VERSION, "zip")
_SECURITY = ("org.opensearch.plugin", "opensearch-security", f"{OPENSEARCH_VERSION}.0", "zip")


def _make_opensearch(place: Path) -> None:
    _unpack(place, *_NODE)
    _unzip(_download(place, *_SECURITY), place / "plugins" / "opensearch-security")


OPENSEARCH = Recipe("opensearch", ("java", "mvn"), lambda: [repr((_NODE, _SECURITY)).encode()], _make_opensearch)
"""The distribution with its security plugin."""

# -- Elasticsearch -----------------------------------------------------------------------------------------------------

ELASTICSEARCH_VERSION = "8.19.4"  # the newest 8; 9 needs Java 21
_ARTIFACT = ("org.elasticsearch.distribution.integ-test-zip", "elasticsearch", ELASTICSEARCH_VERSION, "zip")
_SOURCE = Path(__file__).with_name("elasticsearch_source") / "Analysis.java"
_DESCRIPTION = f"""\
name=analysis
description=what the index of users needs
version=1
classname=shipper.analysis.Analysis
java.version=17
elasticsearch.version={ELASTICSEARCH_VERSION}
"""


def _make_elasticsearch(place: Path) -> None:
    _unpack(place, *_ARTIFACT)
    plugin = place / "plugins" / "analysis"
    classes = plugin / "classes"
    classes.mkdir(parents=True)
    compile = ["javac", "--release", "17", "-proc:none", "-nowarn", "-cp", f"{place}/lib/*", "-d", str(classes)]
    _run(*compile, str(_SOURCE))
    _run("jar", "cf", str(plugin / "analysis.jar"), "-C", str(classes), ".")
    shutil.rmtree(classes)
    (plugin / "plugin-descriptor.properties").write_text(_DESCRIPTION)


ELASTICSEARCH = Recipe(
    "elasticsearch",
    ("java", "javac", "mvn"),
    lambda: [repr(_ARTIFACT).encode(), _DESCRIPTION.encode(), _SOURCE.read_bytes()],
    _make_elasticsearch,
)
"""The distribution for integration tests, with what its index of users needs."""

# -- Maven -------------------------------------------------------------------------------------------------------------


def _unpack(place: Path, group: str, artifact: str, version: str, kind: str) -> None:
    """Unpacks an archive of one directory as `place`."""
    above = place.with_name("unpacked")
    _unzip(_download(place, group, artifact, version, kind), above)
    (above / f"{artifact}-{version}").rename(place)


def _download(place: Path, group: str, artifact: str, version: str, kind: str) -> Path:
    """An artifact without what it depends on, beside `place`."""
    beside = place.with_name("archives")
    everything = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    _copy(beside, _dependency(group, artifact, version, kind, everything))
    return beside / f"{artifact}-{version}.{kind}"


def _dependency(group: str, artifact: str, version: str, kind: str, more: str = "") -> str:
    names = {"groupId": group, "artifactId": artifact, "version": version, "type": kind}
    inner = "".join(f"<{key}>{escape(value)}</{key}>" for key, value in names.items())
    return f"<dependency>{inner}{more}</dependency>"


def _copy(into: Path, dependencies: str) -> None:
    """By a project that copies its dependencies, which asks the configured repositories and keeps one copy."""
    pom = into.with_name("pom.xml")
    pom.write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>test</groupId><artifactId>test</artifactId>"
        f"<version>1</version><packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>"
    )
    _run("mvn", "-B", "-q", "-f", str(pom), _COPY, "-DincludeScope=runtime", f"-DoutputDirectory={into}")


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{command[0]} did not end in {_SECONDS:g} s") from None
    if done.returncode:
        raise Unavailable(f"{command[0]} failed: {(done.stdout + done.stderr)[-2000:]}")


def _unzip(archive: Path, place: Path) -> None:
    """With the modes that zipfile leaves out, so that the scripts stay executable."""
    with zipfile.ZipFile(archive) as zipped:
        for entry in zipped.infolist():
            path = Path(zipped.extract(entry, place))
            if (mode := entry.external_attr >> 16) and not entry.is_dir():
                path.chmod(mode & 0o777)
