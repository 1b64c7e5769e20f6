"""What docs/operating.md says of causes and remedies is what a real shipper says and does."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import takewhile
from pathlib import Path

import pytest
import trio

from shipper.sdk.aio import open_asyncio
from shipper.testing import Reply, open_destination
from tests.docs.reader import NEW, OLD, PATIENCE, TLS, environment, furnish, running, shell
from tests.readme import FILES, Page, one


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The files of README.md: its policy is the one that goes wrong."""
    return furnish(tmp_path, FILES)


PAGE = Page("docs/operating.md")
TABLE = PAGE.text.partition("| Cause | `status` shows |")[2].splitlines()[2:]
ROWS = {row.split("|")[1].strip(): row for row in takewhile(bool, TABLE)}
CAUSES = {cause: re.findall("`([^`]+)`", row.split("|")[2]) for cause, row in ROWS.items()}


@pytest.mark.parametrize("cause", CAUSES)
async def test_of_a_cause_in_the_table_status_says_what_is_written_there(place: Path, cause: str) -> None:
    (place / "keys").mkdir()
    (place / "keys" / "es").write_text(f"{OLD.fields['api_key']}\n")
    (place / "revoke-key").chmod(0o700)
    (place / "policy.yaml").write_text(FILES["policy.yaml"].replace(*WRONG.get(cause, ("", ""))))
    keys = {NEW} if cause == "key revoked too early" else {OLD}
    async with open_asyncio() as aio, open_destination(aio, keys=keys, tls=TLS) as destination:
        destination.script = lambda request, documents: REPLIES.get(cause)
        env = environment(place, NGINX_LOG=str(place / "access.log"), ES_URL=destination.url)
        with running(place, one("sh", "background"), env) as output:
            output.start()
            with trio.fail_after(PATIENCE):
                said = ""
                while not any(text in said for text in CAUSES[cause]):
                    said = await shell(place, "shipper status --state ./state", env, check=False)
            if cause in WRONG:
                (place / "policy.yaml").write_text(FILES["policy.yaml"])
                with trio.fail_after(PATIENCE):
                    await destination.wait_for(5)

    assert [cause for cause, row in ROWS.items() if "meanwhile" in row] == list(WRONG)
    assert set(CAUSES) == set(WRONG) | set(REPLIES) | {"key revoked too early"}


@pytest.mark.needs("jq")
def test_the_command_that_makes_the_journal_readable_shows_time_level_and_message(tmp_path: Path) -> None:
    """Another line, such as those of systemd, stays as it is."""
    policy = tmp_path / "policy.yaml"
    policy.write_text("version: 1\nquue: 1\n")
    refused = [sys.executable, "-m", "shipper", "supervise", "--json", "--state", str(tmp_path / "state"), str(policy)]
    said = subprocess.run(refused, capture_output=True, text=True, timeout=60)
    (tmp_path / "journal").write_text(f"Started shipper.service.\n{said.stdout}{said.stderr}7\n")
    journalctl = f'journalctl() {{ test "$*" = "-u shipper -o cat" && cat {tmp_path}/journal; }}'
    command = f"{journalctl}\n{PAGE.one('sh', 'journal').text}"
    shown = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=True)
    first, *lines, last = shown.stdout.splitlines()

    assert (first, last) == ("Started shipper.service.", "7")
    assert any(re.match(r"\d{4}-\d\d-\d\dT\S+Z error \w", line) for line in lines)
    assert any("quue" in line for line in lines)
    assert not any("{" in line for line in lines)


WRONG = {
    "wrong host": ("${ES_URL:-https://localhost:9200}", "https://shop.invalid:9200"),
    "missing CA": ("tls: {ca: ca.pem}", "tls: {}"),
}
REPLIES = {
    "missing privilege": Reply(items=dict.fromkeys(range(5), (403, "security_exception"))),
    "mapping conflict": Reply(items={0: (400, "document_parsing_exception")}),
}
