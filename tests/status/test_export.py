"""What the export of own metrics and log is asked to do, and what waits while its receiver is away."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
import trustme
from hypothesis import given
from hypothesis import strategies as st

from shipper.process import log
from shipper.process.environment import REAL
from shipper.sdk.aio import open_asyncio
from shipper.sdk.errors import OptionError
from shipper.status import export
from shipper.status.export import Lines, settings

STATE = Path("/var/lib/shipper")
URL = "http://127.0.0.1:4318"


@pytest.mark.parametrize("url", [URL, "https://collector:4318", "http://[::1]:4318/otlp/", "http://collector"])
def test_an_address_is_a_url_with_a_host(url: str) -> None:
    assert settings(url, STATE, {}).endpoint == url.rstrip("/")


def test_what_is_no_such_url_is_refused() -> None:
    for url in [
        "collector:4318",
        "grpc://collector",
        "http://",
        "http://a:b",
        "http://a:0",
        "http://a/?x=1",
        "http://[",
        "",
    ]:
        with pytest.raises(OptionError, match="a receiver of OTLP is a URL of HTTP"):
            settings(url, STATE, {})


@pytest.mark.parametrize("scheme", ["https", "HTTPS", "Https"])
def test_a_receiver_at_https_has_to_prove_its_name_however_the_scheme_is_written(scheme: str) -> None:
    tls = settings(f"{scheme}://collector:4318", STATE, {}).tls

    assert tls
    assert tls.check_hostname


def test_a_password_in_the_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(OptionError, match="OTEL_EXPORTER_OTLP_HEADERS") as refused:
        settings("http://ann:hunter2@collector:4318", STATE, {})

    assert "hunter2" not in str(refused.value)


def test_variables_of_opentelemetry_are_heeded() -> None:
    found = settings(
        URL,
        STATE,
        {
            "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20abc, x-scope = prod",
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=prod,host.name=web-1",
            "OTEL_SERVICE_NAME": "logs",
            "OTEL_METRIC_EXPORT_INTERVAL": "2500",
        },
    )

    assert found.headers == {"authorization": "Bearer abc", "x-scope": "prod"}
    assert found.interval == 2.5
    assert found.resource["service.name"] == "logs"
    assert found.resource["deployment.environment"] == "prod"
    assert found.resource["host.name"] == "web-1"
    assert found.resource["service.instance.id"].endswith(":/var/lib/shipper")


def test_a_wrong_variable_is_refused_by_name_without_its_value() -> None:
    for name, value in [
        ("OTEL_METRIC_EXPORT_INTERVAL", "1s"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "0"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "99999999999"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "hunter2"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "=hunter2"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=hunter2%0d%0ab: c"),
        ("OTEL_RESOURCE_ATTRIBUTES", "prod"),
    ]:
        with pytest.raises(OptionError) as refused:
            settings(URL, STATE, {name: value})

        assert f"${name}" in str(refused.value)
        assert "hunter2" not in str(refused.value)


def test_authorities_are_read_when_the_program_starts(tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(str(authority))
    found = settings("https://collector", STATE, {"OTEL_EXPORTER_OTLP_CERTIFICATE": str(authority)})

    assert found.tls is not False
    assert found.tls.get_ca_certs()
    for wrong in (tmp_path / "absent.pem", tmp_path):
        with pytest.raises(OptionError, match=r"\$OTEL_EXPORTER_OTLP_CERTIFICATE"):
            settings("https://collector", STATE, {"OTEL_EXPORTER_OTLP_CERTIFICATE": str(wrong)})


# -- lines that wait ---------------------------------------------------------------------------------------------------


def now(function: Callable[..., object], *args: Any) -> None:
    function(*args)


@given(st.lists(st.one_of(st.integers(1, 1500), st.just("taken"), st.just("put back"))))
def test_lines_that_wait_are_bounded_keep_their_order_and_are_counted_when_dropped(steps: list[int | str]) -> None:
    lines, written, sent, held = Lines(now), 0, [], []
    for step in steps:
        if isinstance(step, int):
            for number in range(written, written + step):
                lines.take(str(number).encode())
            written += step
        elif step == "taken":
            sent += held
            held = lines.first()
        else:
            lines.put_back(held)
            held = []
    while rest := lines.first():
        held += rest
    found = [int(line) for line in [*sent, *held]]

    assert len(found) + lines.dropped == written
    assert found == sorted(found)


async def test_a_line_of_another_thread_ends_the_wait_for_lines() -> None:
    token = trio.lowlevel.current_trio_token()
    lines = Lines(token.run_sync_soon)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lines.some)
            await trio.testing.wait_all_tasks_blocked()
            await trio.to_thread.run_sync(lines.take, b"{}")

    assert lines.first() == [b"{}"]


# -- what cannot be sent -----------------------------------------------------------------------------------------------


async def until_logged(text: bytes) -> None:
    logged = trio.Event()
    with log.followed(lambda line: logged.set() if text in line else None), trio.fail_after(60):
        await logged.wait()


async def test_a_status_that_fails_does_not_end_the_shipper() -> None:
    async with open_asyncio() as aio, export.exporting(settings(URL, STATE, {}), aio, REAL) as exporter:
        exporter.begin(lambda: {}["what a plugin made"])
        await until_logged(b"own metrics cannot be exported")


async def test_a_line_that_is_no_record_is_dropped_and_does_not_end_the_shipper() -> None:
    async with open_asyncio() as aio, export.exporting(settings(URL, STATE, {}), aio, REAL):
        log.pass_on(b"{}")
        await until_logged(b"own logs cannot be exported")
