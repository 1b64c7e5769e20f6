"""Files are followed: from a glob to a batch. The `file` input is one file on top of this package.

Decisions, synchronous and without a call to a file system:

followed   all streams of an input and what they wait for; what is to be done next
reconcile  a scan: which files are new, elsewhere, gone, or back
turn       one turn of a stream: from what was seen to what is stored
copying    a new file: a copy of a stream that was read, and up to where?
effects    what a decision asks for, where it needs more than was seen
registry   the streams, found by key, file, path and fingerprint
stream     what is known of a content; the stored position
           identity, place, sighting, assembly   the values that it is made of; `stream` says whose they are
chunk      what is stored of a stream at once, and where it stands then
together   the few lines of many files → one batch
lines      bytes → batches of lines            multiline  lines → events of several lines
filtering  which of them are kept               ignoring   which files are too old

What calls, waits, and has time pass:

options    what an input wants to have followed       opening    the door by which it has it
tailer     the running input: who is served when, and what is told
reader     the calls that a turn needs, and the transaction of events and position
queue      whose turn it is
pace       when what was written is read
discovery  globs → the files of now, and the directories whose changes matter
watch      inotify: which of them changed, and when to look again
start      `from: end`: where files end
rotated    files that left the globs while nobody looked
copies     compares a file with a stream
sight      what a thread sees of the files whose turn it is
content    the bytes of a file, plain or compressed, by offset
packing    how files are compressed: which are read, and which are no text
births     when a file was made
open_files the open files
calls      what may hang, in threads of one input

Another input is as small as this one, of the logs that a kubelet keeps of containers:

    class Containers(Input, frozen=True, kw_only=True):
        rereads: ClassVar[bool] = True
        namespace: str

        def identity(self) -> Any:
            return self.namespace

        def options(self) -> Options:
            return Options(
                identity=self.namespace,
                paths=(f"/var/log/pods/{glob.escape(self.namespace)}_*/*/*.log*",),
                fields=_fields,
            )

        @asynccontextmanager
        async def open(self, context: InputContext) -> AsyncIterator[Source]:
            async with tailing(self, context) as source:
                yield source

    def _fields(path: str) -> Fields:
        pod, container = path.split("/")[-3:-1]
        namespace, name, uid = pod.split("_")
        of_pod = {"namespace": namespace, "pod": {"name": name, "uid": uid}, "container": {"name": container}}
        return {"kubernetes": of_pod, "ecs": {"version": "8.17.0"}}

A stage `parse` takes off what a runtime writes before each line.
"""
