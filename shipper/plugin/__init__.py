"""PUBLIC: what inputs, processors and outputs are made of; the other public modules are named below.

A plugin is one class in one file, found by an entry point of the group `shipper.inputs`, `shipper.processors` or
`shipper.outputs`; the entry point's name is the `type` that a policy writes. The class body *is* the configuration: a
frozen struct whose fields, types, defaults and docstrings become the JSON Schema and the reference. An input or output
is opened as an async context manager: entering it acquires what the plugin needs, leaving it releases everything.

    class ConsoleOutput(Output):
        '''Writes events to standard error.'''
        pretty: bool = False

        @asynccontextmanager
        async def open(self, context: OutputContext) -> AsyncIterator[Sender]:
            yield Console(self)

Values of the types `Size`, `Duration` and `Material` are written as `1MiB`, `30s` and the path of a PEM file. A setting
of the type `CredentialId` refers to a secret. It may be anywhere in the settings of an input or output: nested,
optional, in a list, as a value of a mapping, in a tagged union. `Annotated[CredentialId, takes(API_KEY, BASIC)]` names
the shapes that it accepts. The context holds the secrets, by id.

A class with a required field sets `kw_only=True`. The docstring of a field is the string literal below it. In
`__post_init__`, raise `BadOption("hosts[1] is named twice", "hosts", 1)` for an invalid option, and ValueError for
options that contradict each other. Either becomes an error with the place in the policy: that of the option, or that of
the plugin.

`Later`, `Held`, `TooLarge`, `StartFailed`, `Answer` and `report` take a `code` for programs: one of `Code`, or one of
the plugin's own, in lower case. Each has a default.

The other public modules, each for one subject:

    shipper.plugin.asking       answers before events: `Output.ask` and `set_up`
    shipper.plugin.relay        from one shipper to another
    shipper.plugin.secrets      kinds of references to secrets
    shipper.plugin.state        keyed state and its versions
    shipper.policy.strict       reads YAML as strictly as a policy
    shipper.sdk.bodies          the bodies of requests, within bounds
    shipper.sdk.codes           the codes of the system's errors
    shipper.sdk.columns         rows of bytes by columns, and their JSON
    shipper.sdk.conditions      conditions on events
    shipper.sdk.connection      connections for an output with a protocol of its own
    shipper.sdk.crowd           which connection a server closes when there are too many
    shipper.sdk.descriptors     what to do and say when descriptors run short
    shipper.sdk.editing         edits of each event, counted by the caller
    shipper.sdk.endpoints       addresses to listen on
    shipper.sdk.event           the parts of a batch
    shipper.sdk.fields          finds and changes single fields of events
    shipper.sdk.forms           messages in a format of the input's own
    shipper.sdk.hosts           whether a request is for this host
    shipper.sdk.http            an HTTP client that aborts its connections when it is closed; imports aiohttp, so
                                import it in `Output.load`
    shipper.sdk.http_answer     what a request came to
    shipper.sdk.inotify         changes of files
    shipper.sdk.joining         one batch of several, as an output gets it
    shipper.sdk.patterns        regular expressions of a policy, searched for in linear time
    shipper.sdk.proxies         the proxy of a request, by a setting or by the environment
    shipper.sdk.rooms           which connections a server keeps
    shipper.sdk.server          serves a listening socket within bounds
    shipper.sdk.sockets         options and counters of sockets
    shipper.sdk.tallies         the counts of an output's requests
    shipper.sdk.tls             contexts of TLS from the settings of a policy
    shipper.sdk.typed           typed events as JSON
    shipper.sdk.weights         what events weigh
    shipper.testing             fakes, and checks of the whole contract

One more is open to all and no part of the contract, since it may change with any release:

    shipper.sdk.table           documents by columns: how a processor spares the events of a batch an object each
"""

from __future__ import annotations

from shipper.plugin.inputs import DataStream, Input, InputContext, Source
from shipper.plugin.outputs import Output, OutputContext, Sender
from shipper.plugin.processors import Processor
from shipper.sdk.aio import Asyncio
from shipper.sdk.answers import Answer, Answers, Outcome
from shipper.sdk.codes import Code
from shipper.sdk.columns import join
from shipper.sdk.conditions import Condition
from shipper.sdk.credentials import (
    API_KEY,
    AWS,
    BASIC,
    BEARER_TOKEN,
    CERTIFICATE,
    NATS,
    OAUTH2_CLIENT,
    PASSWORD,
    TOKEN,
    Credential,
    CredentialId,
    Shape,
    takes,
)
from shipper.sdk.editing import edited, tagged
from shipper.sdk.endpoints import Endpoint
from shipper.sdk.errors import (
    Backpressure,
    BadOption,
    Held,
    Later,
    NotBegun,
    Outdated,
    PluginFault,
    StartFailed,
    TooLarge,
    anew,
    forget_frames,
    raised_at,
)
from shipper.sdk.event import Batch
from shipper.sdk.feeding import Feeding
from shipper.sdk.fields import Fields
from shipper.sdk.meters import Meters, meters
from shipper.sdk.retry import backoff
from shipper.sdk.settings import Settings
from shipper.sdk.stage import Ledger, Part, Stage, StageContext
from shipper.sdk.threads import in_thread
from shipper.sdk.tls import ClientTls, Material, client_context
from shipper.sdk.units import Duration, Size

__all__ = [
    "API_KEY",
    "AWS",
    "BASIC",
    "BEARER_TOKEN",
    "CERTIFICATE",
    "NATS",
    "OAUTH2_CLIENT",
    "PASSWORD",
    "TOKEN",
    "Answer",
    "Answers",
    "Asyncio",
    "Backpressure",
    "BadOption",
    "Batch",
    "ClientTls",
    "Code",
    "Condition",
    "Credential",
    "CredentialId",
    "DataStream",
    "Duration",
    "Endpoint",
    "Feeding",
    "Fields",
    "Held",
    "Input",
    "InputContext",
    "Later",
    "Ledger",
    "Material",
    "Meters",
    "NotBegun",
    "Outcome",
    "Outdated",
    "Output",
    "OutputContext",
    "Part",
    "PluginFault",
    "Processor",
    "Sender",
    "Settings",
    "Shape",
    "Size",
    "Source",
    "Stage",
    "StageContext",
    "StartFailed",
    "TooLarge",
    "anew",
    "backoff",
    "client_context",
    "edited",
    "forget_frames",
    "in_thread",
    "join",
    "meters",
    "raised_at",
    "tagged",
    "takes",
]
