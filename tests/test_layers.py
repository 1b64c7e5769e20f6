"""Who may import whom: a room imports from the layers below its own, never from above or from beside it.

A room is a folder of `shipper`, or a module beside the folders. `LAYERS` orders the rooms; `INSIDE` orders the modules
and packages of a room, or of a package in it, in the same way. A new module gets its place as low as its imports allow.
What is inside the rooms and packages that `INSIDE` does not name is free, but for circles.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
SHIPPER = ROOT / "shipper"
PLUGINS = ROOT / "plugins" / "shipper_plugins"
DEMO = ROOT / "demo" / "shipper_demo"
STRANGER = ROOT / "tests" / "stranger" / "shipper_stranger"
"""Plugins of another distribution (`tests/test_stranger.py`)."""

LAYERS = [
    {"__main__", "commands"},
    {"asking"},
    {"fleet", "kubernetes"},
    {"membership"},
    {"sidecar", "supervise"},
    {"control"},
    {"status"},
    {"revisions"},
    {"pipeline"},
    {"spool", "policy", "protocol"},
    {"apiserver"},
    {"plugin"},
    {"process"},
    {"values", "sdk"},
]
"""From the top to the bottom."""

INSIDE = {
    "fleet": [
        {"agent"},
        {"following", "questions", "releasing", "source"},
        {"drafts", "election", "host", "membership", "observer", "opening", "operations", "page", "progress"},
        {"certificates", "publisher"},
        {"home", "pictures"},
        {"changes", "member", "overview", "publishing", "release"},
        {"judge"},
        {"known", "standings"},
        {"view"},
        {"etcd", "kubernetes", "memory", "seal"},
        {"errors", "records", "secret", "settings", "store"},
    ],
    "fleet/member": [
        {"machine"},
        {"reporting"},
        {"registration"},
        {"answers", "claim", "fencing", "losses", "marking", "rollout", "withdrawals"},
        {"head", "steps"},
        {"order"},
    ],
    "fleet/membership": [
        {"membership"},
        {"fetching", "offers", "session", "watching"},
        {"host", "offered", "pace", "sealed", "troubles"},
    ],
    "kubernetes": [
        {"agent"},
        {"host", "source"},
        {"membership"},
        {"home", "judging", "probes", "summing"},
        {"member"},
        {"merging"},
        {"events", "secret", "selectors", "settings", "trees"},
        {"kinds"},
    ],
    "kubernetes/member": [
        {"machine"},
        {"running"},
        {"introducing", "proving", "reporting", "standing"},
        {"choosing", "claim", "registering"},
        {"entries", "fencing", "losses", "own", "pace", "policies", "refusals", "using", "vectors"},
        {"contents"},
        {"secrets"},
        {"overtaking", "steps"},
        {"memory"},
    ],
    "kubernetes/membership": [
        {"membership"},
        {"following", "offers", "session"},
        {"host", "troubles"},
    ],
    "membership": [
        {"agent_host", "http", "leases", "page"},
        {"causes", "door", "host", "ids", "longest", "offers", "sidecar_http", "steps"},
    ],
    "fleet/kubernetes": [
        {"store"},
        {"keeper", "watch"},
        {"leases"},
        {"removal"},
        {"answers", "lives", "objects"},
    ],
    "kubernetes/summing": [
        {"leader"},
        {"term"},
        {"following"},
        {"echoes", "tasks"},
        {"election", "picture", "writing"},
        {"finalizing", "release", "seat"},
        {"judge"},
        {"liveness", "parts"},
        {"records", "troubles"},
    ],
    "apiserver": [
        {"reflector"},
        {"client"},
        {"watching"},
        {"config", "connections"},
        {"kubeconfig", "login"},
        {"program", "reflection"},
        {"expectations", "stream", "trust"},
        {"credentials", "errors", "objects", "server", "versions"},
    ],
    "control": [
        {"asking", "conversation"},
        {"actions", "local", "outbox", "door", "statements"},
        {"pipes", "tapping"},
    ],
    "status": [
        {"observer", "http", "export"},
        {"page", "telemetry"},
        {"view"},
        {"drains", "fleet"},
        {"ages", "blame", "calm", "health", "metrics", "rates", "relays", "remedies", "words"},
    ],
    "revisions": [
        {"deadline", "forwarding"},
        {"rollout", "orders", "requeue"},
        {"machine"},
        {"effects"},
        {"offer", "statements"},
    ],
    "pipeline": [
        {"intake"},
        {"delivery"},
        {"attempts"},
        {"destination", "memory"},
        {"door", "keyring", "libraries", "plan", "sources", "tap"},
    ],
    "pipeline/intake": [
        {"intake"},
        {"port"},
        {"entrance", "gathering"},
        {"stages"},
        {"chain"},
        {"conditional", "envelope", "listeners"},
    ],
    "pipeline/delivery": [
        {"delivery"},
        {"lane"},
        {"machine", "sending"},
        {"request", "shown"},
        {"session"},
        {"probe"},
        {"feed"},
        {"parcels"},
        {"backlog"},
        {"waits"},
    ],
    "pipeline/attempts": [
        {"joining", "settling"},
        {"attempt"},
        {"fences", "stable", "suspects"},
    ],
    "pipeline/destination": [
        {"pool"},
        {"client", "hold"},
        {"accepted", "confirmed", "counted", "counts", "fenced", "lease", "routed"},
    ],
    "pipeline/memory": [
        {"loading"},
        {"loans", "recent", "slots"},
    ],
    "policy": [
        {"idle"},
        {"policy", "schema"},
        {"secret_sources"},
        {"registry"},
        {"uses"},
        {"cases", "settings", "strict"},
        {"document"},
    ],
    "plugin": [{"asking", "inputs", "outputs", "processors", "relay", "secrets", "state"}],
    "protocol": [{"bounds", "lines"}, {"messages"}],
}

ASYNCIO = {"asyncio", "aiohttp"}
MAY_USE_ASYNCIO = {"sdk/aio.py", "sdk/http.py", "sdk/late_authorities.py", "status/http.py"}
CLOCKS, THREADS = {"time.time", "time.monotonic"}, {"threading.Thread", "trio.to_thread"}
MACHINE = CLOCKS | THREADS | {"os.urandom", "secrets.token_bytes", "uuid.uuid4"}
"""What the sidecar gets as `shipper.process.environment.Environment`."""
WITHOUT_MACHINE = {"sidecar", "control", "status", "revisions", "pipeline", "spool", "policy", "protocol", "process"}
MAY_USE_THE_MACHINE = {
    "process/environment.py",
    "process/log.py",  # one for a process
    "process/usage.py",  # of this process
    "pipeline/libraries.py",  # imports
    "pipeline/intake/listeners.py",  # sockets
}
DOOR_OF_THE_DEMO = "commands/demo.py"
DOOR = SHIPPER / "plugin" / "__init__.py"
LISTED = re.compile(r"^    shipper\.([a-z_.]+)  ", re.M)
PUBLIC = set(LISTED.findall(ast.get_docstring(ast.parse(DOOR.read_text()), clean=False) or ""))
"""Beside `shipper.plugin`: what plugins may import. The docstring of this door has the list."""
MAY_BE_SHOWN = {"plugin", "testing", "sdk.aio", "sdk.errors"}
"""Of shipper, to the demo, which is a program of its own beside it."""
FOR_PLUGIN_AUTHORS = "testing"
"""`shipper.testing` stands beside the layers: nothing of shipper imports it, and it imports what plugins may import."""

Import = tuple[str, int]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


@cache
def imports(path: Path) -> tuple[Import, ...]:
    """Every module that a file imports, anywhere in it, with its line; `from shipper import x` is `shipper.x`."""
    return tuple(imported(path))


def imported(path: Path) -> Iterator[Import]:
    for node in statements(parsed(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = absolute(path, node)
            yield module, node.lineno
            yield from ((f"{module}.{alias.name}", node.lineno) for alias in node.names)


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All below a node, at any depth: a tenth of what `ast.walk` visits."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for one in getattr(node, name, ()) if not isinstance(node, ast.expr) else ():
            yield one
            yield from statements(one)


def imported_at_once(path: Path) -> set[str]:
    """What is imported when a file is, so neither in a function nor for the type checker alone."""
    at_once = [node for node in parsed(path).body if isinstance(node, ast.Import | ast.ImportFrom)]
    lines = {node.lineno for node in at_once}
    return {module for module, line in imports(path) if line in lines}


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(base(path)).with_suffix("").parts).removesuffix(".__init__")


def base(path: Path) -> Path:
    """The folder that holds the package of a file."""
    return next(package.parent for package in (SHIPPER, PLUGINS, DEMO, STRANGER) if path.is_relative_to(package))


def absolute(path: Path, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = path.relative_to(base(path)).parts[: -node.level]
    return ".".join([*package, *([node.module] if node.module else [])])


def group(path: Path) -> str:
    """The name in LAYERS of a file of shipper."""
    return path.relative_to(SHIPPER).parts[0].removesuffix(".py")


def groups_imported(path: Path) -> Iterator[Import]:
    """The groups of shipper that a file imports, each once a line; a name of `shipper` itself is none."""
    found = ((name.split("."), line) for name, line in imports(path))
    yield from dict.fromkeys((parts[1], line) for parts, line in found if parts[0] == "shipper" and exists(parts[1:]))


def exists(parts: list[str]) -> bool:
    return bool(parts) and ((SHIPPER / f"{parts[0]}.py").exists() or (SHIPPER / parts[0]).is_dir())


def modules(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.py") if path != SHIPPER / "__init__.py")


def files(part: Path) -> list[Path]:
    """The files of a module, which has no suffix here, or of a package."""
    return modules(part) if part.is_dir() else [part.with_suffix(".py")]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def depth(group_name: str) -> int:
    return next(number for number, layer in enumerate(LAYERS) if group_name in layer)


def private(path: Path, doors: set[str]) -> list[str]:
    """What a file imports of shipper beside the doors and what is PUBLIC."""
    public = {line for module, line in imports(path) if module.removeprefix("shipper.") in PUBLIC}
    found = groups_imported(path)
    return [
        f"{name(path)}:{line} imports {other}" for other, line in found if other not in doors and line not in public
    ]


OF_SHIPPER = [path for path in modules(SHIPPER) if group(path) != FOR_PLUGIN_AUTHORS]
LAYERED = [path for path in OF_SHIPPER if any(group(path) in layer for layer in LAYERS)]
OF_TESTING = [path for path in modules(SHIPPER) if group(path) == FOR_PLUGIN_AUTHORS]


def test_every_module_has_a_layer():
    without = {group(path) for path in OF_SHIPPER} - set.union(*LAYERS)

    assert not without, f"give {', '.join(sorted(without))} a place in LAYERS of tests/test_layers.py"


def test_every_part_of_an_ordered_room_has_a_layer_in_it():
    for room, layers in INSIDE.items():
        there = {path.stem for path in (SHIPPER / room).glob("*.py")} - {"__init__"}
        there |= {path.parent.name for path in (SHIPPER / room).glob("*/__init__.py")}
        assert sorted(name for layer in layers for name in layer) == sorted(there), room


def test_a_part_of_a_room_imports_nothing_from_above_in_it():
    wrong = []
    for room, layers in INSIDE.items():
        package = ".".join(["shipper", *Path(room).parts])
        for number, layer in enumerate(layers):
            above = [f"{package}.{name}" for upper in layers[:number] for name in upper]
            paths = [path for part in layer for path in files(SHIPPER / room / part)]
            wrong += [
                f"{name(path)}:{line} imports {other}"
                for path in paths
                for other, line in imports(path)
                if any(is_of(other, upper) for upper in above)
            ]

    assert not wrong, "\n".join(wrong)


def test_a_module_imports_nothing_from_above_or_from_beside():
    allowed = {name: {name}.union(*LAYERS[depth(name) + 1 :]) for name in set.union(*LAYERS)}
    wrong = [
        f"{name(path)}:{line} imports {other}"
        for path in LAYERED
        for other, line in groups_imported(path)
        if other not in allowed[group(path)]
    ]

    assert not wrong, "\n".join(wrong)


def test_a_plugin_imports_the_public_door_and_its_own_package():
    wrong = [line for path in (*modules(PLUGINS), *modules(STRANGER)) for line in private(path, {"plugin"})]

    assert not wrong, "\n".join(wrong)


def test_the_list_of_public_modules_has_each_that_says_so():
    said = {dotted(path) for path in modules(SHIPPER) if (ast.get_docstring(parsed(path)) or "").startswith("PUBLIC: ")}

    assert said == {"shipper.plugin", *(f"shipper.{module}" for module in PUBLIC)}


def test_the_fakes_for_plugin_authors_import_the_public_door():
    wrong = [line for path in OF_TESTING for line in private(path, {"plugin", FOR_PLUGIN_AUTHORS})]

    assert not wrong, "\n".join(wrong)


def test_no_imports_go_in_a_circle():
    files = {dotted(path): path for path in (*modules(SHIPPER), *modules(PLUGINS), *modules(DEMO))}
    graph = {name: imported_at_once(path) & files.keys() - {name} for name, path in files.items()}

    assert set(TopologicalSorter(graph).static_order()) == files.keys()


def test_shipper_imports_no_plugin_by_name():
    """A plugin that comes with shipper has no privilege over a stranger's: entry points are the only way."""
    wrong = [
        f"{name(path)}:{line}"
        for path in modules(SHIPPER)
        for module, line in imports(path)
        if module.split(".")[0] == "shipper_plugins"
    ]

    assert not wrong


def test_shipper_imports_the_demo_at_its_door_only():
    importers = {
        str(path.relative_to(SHIPPER))
        for path in modules(SHIPPER)
        for module, _ in imports(path)
        if module.split(".")[0] == "shipper_demo"
    }

    assert importers == {DOOR_OF_THE_DEMO}


def test_the_demo_imports_what_is_public_and_its_own_package():
    wrong = [
        f"{name(path)}:{line} imports {module}"
        for path in modules(DEMO)
        for module, line in imports(path)
        if module.startswith("shipper.") and not any(is_of(module.removeprefix("shipper."), of) for of in MAY_BE_SHOWN)
    ]

    assert not wrong, "\n".join(wrong)


def is_of(module: str, package: str) -> bool:
    return f"{module}.".startswith(f"{package}.")


def test_asyncio_stays_behind_its_bridge():
    wrong = [
        f"{name(path)}:{line} imports {module}"
        for path in OF_SHIPPER
        for module, line in imports(path)
        if module.split(".")[0] in ASYNCIO and str(path.relative_to(SHIPPER)) not in MAY_USE_ASYNCIO
    ]

    assert not wrong


def test_clocks_entropy_and_threads_come_through_one_door():
    """What reads the machine's own beside it is out of reach of the simulation."""
    wrong = [
        f"{name(path)}:{node.lineno} uses {ast.unparse(node)}"
        for path in OF_SHIPPER
        if group(path) in WITHOUT_MACHINE
        and str(path.relative_to(SHIPPER)) not in MAY_USE_THE_MACHINE
        and any(use in path.read_text() for use in MACHINE)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in MACHINE
    ]

    assert not wrong, "\n".join(wrong)


def lost_updates(tree: ast.AST) -> Iterator[int]:
    """Lines that read an attribute or an item, wait, and write it: `x.n += await …`, `x.n = x.n + await …`."""
    for node in statements(tree):
        match node:
            case ast.AugAssign(target=ast.Attribute() | ast.Subscript(), value=value) if waits(value):
                yield node.lineno
            case ast.Assign(targets=targets, value=value) if waits(value):
                shared = [ast.unparse(to) for to in targets if isinstance(to, ast.Attribute | ast.Subscript)]
                if read_before_waiting(value).intersection(shared):
                    yield node.lineno


def waits(value: ast.expr) -> bool:
    return any(isinstance(node, ast.Await) for node in ast.walk(value))


def read_before_waiting(value: ast.expr) -> set[str]:
    """What the expression reads to the left of its first `await`."""
    first = min((node.lineno, node.col_offset) for node in ast.walk(value) if isinstance(node, ast.Await))
    reads = (node for node in ast.walk(value) if isinstance(node, ast.Attribute | ast.Subscript))
    return {ast.unparse(node) for node in reads if (node.lineno, node.col_offset) < first}


def test_a_figure_is_updated_in_one_step():
    """What others add between the `await` and the assignment would be lost."""
    paths = (*modules(SHIPPER), *modules(PLUGINS), *modules(DEMO))
    wrong = [
        f"{name(path)}:{line}" for path in paths if "await " in path.read_text() for line in lost_updates(parsed(path))
    ]

    assert not wrong


def test_the_program_never_imports_from_its_tests():
    wrong = [
        f"{name(path)}:{line} imports {module}"
        for path in (*modules(SHIPPER), *modules(PLUGINS), *modules(DEMO))
        for module, line in imports(path)
        if module.split(".")[0] in ("tests", "pytest", "hypothesis", "trustme", "conftest")
    ]

    assert not wrong
