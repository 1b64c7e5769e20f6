import json
import os

import pytest
import trustme
from click.testing import CliRunner
from cryptography.hazmat.primitives import serialization

from shipper.commands.validate import REFUSED, command
from shipper.policy.registry import Registry
from shipper.sdk.errors import PolicyError
from shipper.supervise import secrets
from shipper.supervise.sources import read_tree

GOOD = "version: 1\ninputs: {g: {type: generate}}\noutputs: {c: {type: console}}\n"
GOOD += "processors: [{type: add_fields, fields: {a: '${NAME}'}}]\n"
BAD = "version: 1\noutputs: {main: {type: nosuch}}\nquue: {}\n"


def validate(*arguments, **environment):
    return CliRunner().invoke(command, [str(argument) for argument in arguments], env=environment)


@pytest.fixture
def good(tmp_path):
    path = tmp_path / "good.yaml"
    path.write_text(GOOD)
    return path


@pytest.fixture
def bad(tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text(BAD)
    return path


def test_a_good_file_is_told_with_its_counts(good):
    result = validate(good, NAME="x")

    assert (result.exit_code, result.stdout) == (0, f"{good}: ok, 1 input, 1 output\n")


def test_every_mistake_is_a_line_with_its_place_and_the_status_is_78(good, bad):
    result = validate(good, bad, NAME="x")
    lines = result.stdout.splitlines()

    assert result.exit_code == 78
    assert lines[0] == f"{good}: ok, 1 input, 1 output"
    assert lines[1].startswith(f'{bad}:2:24: outputs.main.type: there is no output of type "nosuch"; installed: ')
    assert lines[2] == f'{bad}:3:1: quue: unknown key "quue" (did you mean "queue"?)'
    assert len(lines) == 3


def test_the_result_can_be_read_by_programs(good, bad):
    result = validate("--format", "json", good, bad, NAME="x")
    first, second = json.loads(result.stdout)

    assert result.exit_code == 78
    assert first == {"file": str(good), "valid": True, "inputs": 1, "outputs": 1, "warnings": [], "errors": []}
    error = second["errors"][1]
    assert (second["valid"], error["line"], error["path"], error["code"]) == (False, 3, "quue", "unknown_key")


def with_credential(path, reference, host="https://a:9200"):
    text = f"version: 1\noutputs: {{main: {{type: elasticsearch, hosts: ['{host}'], credential: {reference}}}}}\n"
    path.write_text(text)
    return path


@pytest.mark.parametrize("reference", ["{env: NO_SUCH_VARIABLE}", "{systemd: x}", "es-2"])
def test_a_secret_is_neither_read_nor_needed(tmp_path, reference):
    path = with_credential(tmp_path / "p.yaml", reference)
    result = validate(path)

    assert (result.exit_code, result.stdout) == (0, f"{path}: ok, 0 inputs, 1 output\n")


def test_the_file_of_a_secret_that_is_not_here_is_a_warning_with_its_place(tmp_path):
    """On the host where it must be, that is a mistake; elsewhere, in CI perhaps, it must not be."""
    path = with_credential(tmp_path / "p.yaml", "{file: /no/such/secret}")
    text = "outputs.main.credential: the secret file:/no/such/secret is not here: No such file or directory"
    result = validate(path)
    (told,) = json.loads(validate("--format", "json", path).stdout)

    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"{path}: ok, 0 inputs, 1 output",
        f"{path}: warning: {path}:2:78: {text}",
    ]
    assert told["warnings"] == [f"{path}:2:78: {text}"]


def test_a_pem_file_that_is_not_here_is_a_warning_with_its_place_and_with_secrets_an_error(tmp_path):
    path = tmp_path / "p.yaml"
    text = "version: 1\noutputs:\n  a: {type: elasticsearch, hosts: ['https://a:9200'], tls: {ca: /no/ca.pem}}\n"
    path.write_text(text)
    place = f"{path}:3:65: outputs.a.tls.ca: cannot read this file: No such file or directory"
    result, strict = validate(path), validate("--secrets", path)
    compared = validate("--against", path, path)

    assert (result.exit_code, result.stdout) == (0, f"{path}: ok, 0 inputs, 1 output\n{path}: warning: {place}\n")
    assert (strict.exit_code, strict.stdout) == (REFUSED, f"{place}\n")
    assert compared.stdout.splitlines()[:2] == [f"{path}: ok, 0 inputs, 1 output", "  changes nothing"]


def test_an_absent_certificate_and_an_absent_secret_are_both_warnings_and_both_errors_with_secrets(tmp_path):
    path = tmp_path / "p.yaml"
    output = "{type: elasticsearch, hosts: ['https://a'], tls: {ca: /no/ca.pem}, credential: {file: /no/key}}"
    path.write_text(f"version: 1\noutputs:\n  a: {output}\n")
    warned, strict = validate(path), validate("--secrets", path)

    for told in (warned.stdout, strict.stdout):
        assert "outputs.a.tls.ca: cannot read this file: No such file or directory" in told
        assert "outputs.a.credential: the secret file:/no/key " in told
    assert (warned.exit_code, strict.exit_code) == (0, REFUSED)


def test_an_absent_pem_file_hides_no_mistake(tmp_path):
    path, ca = tmp_path / "p.yaml", tmp_path / "ca.pem"
    path.write_text(
        f"version: 1\noutputs:\n  a: {{type: elasticsearch, hosts: ['https://a'], tls: {{ca: /no/ca.pem}}}}\n"
        f"  b: {{type: elasticsearch, hosts: ['https://a'], tls: {{ca: {ca}}}}}\n"
    )
    ca.write_text("nothing")

    assert validate(path).exit_code == REFUSED
    assert "outputs.b.tls.ca: this file holds no PEM block" in validate(path).stdout


@pytest.mark.parametrize(
    ("reference", "wrong"),
    [
        ("{file: /no/such/secret}", "the secret file:/no/such/secret cannot be read: No such file or directory"),
        ("{env: NO_SUCH_VARIABLE}", "the secret env:NO_SUCH_VARIABLE is not set"),
        ("{file: es}", "is empty"),
    ],
)
def test_on_demand_secrets_are_read_and_a_missing_one_is_an_error(tmp_path, reference, wrong):
    path = with_credential(tmp_path / "p.yaml", reference)
    (tmp_path / "es").touch(mode=0o600)
    result = validate("--secrets", path)

    assert result.exit_code == REFUSED
    assert result.stdout.startswith(f"{path}:2:78: outputs.main.credential: ")
    assert wrong in result.stdout
    (tmp_path / "es").write_text("id:hunter2")
    assert validate("--secrets", with_credential(path, "{file: es}")).stdout == f"{path}: ok, 0 inputs, 1 output\n"


@pytest.mark.parametrize(
    ("key", "wrong"), [("locked", "the key is encrypted"), ("foreign", "KEY_VALUES_MISMATCH"), ("own", "")]
)
def test_on_demand_a_certificate_is_refused_that_the_sidecar_would_refuse(tmp_path, key, wrong):
    authority = trustme.CA()
    own, foreign = (authority.issue_cert(name) for name in ("a.test", "b.test"))
    lock = serialization.BestAvailableEncryption(b"x")
    loaded = serialization.load_pem_private_key(own.private_key_pem.bytes(), None)
    locked = loaded.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock)
    keys = {"locked": locked, "foreign": foreign.private_key_pem.bytes(), "own": own.private_key_pem.bytes()}
    content = {"certificate": own.cert_chain_pems[0].bytes().decode(), "key": keys[key].decode()}
    (tmp_path / "client").write_text(json.dumps(content))
    (tmp_path / "client").chmod(0o600)
    result = validate("--secrets", with_credential(tmp_path / "p.yaml", "{file: client}"))

    assert (result.exit_code, wrong in result.stdout) == (REFUSED if wrong else 0, True)


@pytest.mark.parametrize(("mode", "told"), [(0o600, False), (0o400, False), (0o640, True), (0o604, True)])
def test_a_secret_that_others_can_read_is_a_warning(tmp_path, mode, told):
    path = with_credential(tmp_path / "p.yaml", "{file: es}")
    (tmp_path / "es").write_text("id:hunter2")
    (tmp_path / "es").chmod(mode)
    result = validate(path)
    warnings = result.stdout.splitlines()[1:]

    assert result.exit_code == 0
    assert "hunter2" not in result.output
    assert [f"other users have rights to it (mode {mode:04o})" in warning for warning in warnings] == [True] * told


@pytest.mark.root
@pytest.mark.parametrize(("mode", "told"), [(0o640, False), (0o660, True), (0o644, True)])
def test_a_secret_that_root_lets_another_group_read_is_meant_for_it(tmp_path, mode, told):
    path = with_credential(tmp_path / "p.yaml", "{file: es}")
    (tmp_path / "es").touch()
    os.chown(tmp_path / "es", 0, 65534)
    (tmp_path / "es").chmod(mode)

    assert ("other users have rights to it" in validate(path).stdout) == told


@pytest.mark.root
def test_a_secret_that_belongs_to_somebody_else_is_a_warning(tmp_path):
    path = with_credential(tmp_path / "p.yaml", "{file: es}")
    (tmp_path / "es").touch(mode=0o600)
    os.chown(tmp_path / "es", 65534, 65534)

    assert "it belongs to another user (uid 65534); write: chown 0 " in validate(path).stdout


@pytest.mark.parametrize("host", ["http://es-1:9200", "http://10.0.0.1:9200", "http://[2001:db8::1]:9200/es"])
def test_a_credential_that_leaves_this_host_unencrypted_is_a_warning(tmp_path, host):
    path = with_credential(tmp_path / "p.yaml", "es-1", host)
    warning = f"{path}: warning: outputs.main: the credential goes to {host} unencrypted; write https://"

    assert validate(path).stdout.splitlines()[1:] == [warning]


@pytest.mark.parametrize(
    "host", ["https://es-1:9200", "http://127.0.0.1:9200", "http://[::1]:9200", "http://localhost"]
)
def test_what_is_encrypted_or_stays_on_this_host_is_no_warning(tmp_path, host):
    path = with_credential(tmp_path / "p.yaml", "es-1", host)

    assert validate(path).stdout == f"{path}: ok, 0 inputs, 1 output\n"


def test_a_reference_that_is_none_is_named_as_the_supervisor_names_it(tmp_path):
    path = with_credential(tmp_path / "policy.yaml", "{env: A, file: b}")
    result = validate(path)
    with pytest.raises(PolicyError) as caught:
        secrets.references(read_tree([path], {}), Registry.installed())

    assert result.exit_code == REFUSED
    assert result.stdout.strip() == str(caught.value)


def test_a_secret_in_a_file_is_refused_and_never_shown(tmp_path):
    path = with_credential(tmp_path / "p.yaml", "{api_key: hunter2}")
    for form in ("text", "json"):
        result = validate("--format", form, path)

        assert result.exit_code == 78
        assert "outputs.main.credential" in result.stdout
        assert "hunter2" not in result.output


def test_a_missing_variable_and_a_missing_file_are_mistakes(good, tmp_path):
    assert validate(good).exit_code == 78
    assert f"{good}:4:" in validate(good).stdout
    assert validate(tmp_path / "none.yaml").exit_code == 78


def test_without_a_file_it_is_wrong_usage():
    assert validate().exit_code == 2


def test_inputs_without_an_output_are_valid_with_a_warning(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text("version: 1\ninputs: {g: {type: generate}}\n")
    text, as_json = validate(path), validate("--format", "json", path)

    assert (text.exit_code, as_json.exit_code) == (0, 0)
    told = f"{path}:2:1: inputs: there are inputs and no outputs: nothing is read; add an output"
    assert text.stdout.splitlines() == [f"{path}: ok, 1 input, 0 outputs", f"{path}: warning: {told}"]
    assert json.loads(as_json.stdout)[0]["warnings"] == [told]


def test_a_file_of_processors_alone_is_valid_with_a_warning_beside_those_of_the_whole(tmp_path):
    (tmp_path / "a.yaml").write_text("version: 1\ninputs: {g: {type: generate, outputs: [c]}}\n")
    (tmp_path / "b.yaml").write_text("version: 1\noutputs: {c: {type: console}, d: {type: console}}\n")
    (tmp_path / "c.yaml").write_text("version: 1\n\nprocessors:\n  - {type: add_fields, fields: {a: b}}\n")
    result = validate(tmp_path)

    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"{tmp_path}: ok, 1 input, 2 outputs",
        f"{tmp_path}: warning: {tmp_path}/c.yaml:3:1: processors: they act on the inputs of this file alone, and it "
        "has none; move them to the files of the inputs, or to the `processors` of an output",
        f"{tmp_path}: warning: {tmp_path}/b.yaml:2:31: outputs.d: no input sends to this output; name it in the "
        "`outputs` of an input, or remove it",
    ]


@pytest.mark.parametrize("port", ["0", "65536", "99999", "http"])
def test_the_port_of_a_host_is_one(tmp_path, port):
    path = tmp_path / "p.yaml"
    path.write_text(f"version: 1\noutputs: {{main: {{type: elasticsearch, hosts: ['http://x:{port}']}}}}\n")

    assert "a host's port is a number from 1 to 65535" in validate(path).stdout
    path.write_text(path.read_text().replace(f":{port}'", ":65535'"))
    assert validate(path).exit_code == 0


def test_a_host_without_its_scheme_is_told_how_to_begin(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text("version: 1\noutputs: {main: {type: elasticsearch, hosts: ['localhost:9200']}}\n")

    assert "begins with http:// or https://" in validate(path).stdout
