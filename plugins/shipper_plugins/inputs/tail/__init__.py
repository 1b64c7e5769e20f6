"""The parts of the `file` input, from a glob to a batch.

discovery  globs → the files of now, and the directories whose changes matter
watch      inotify: which of them changed, and when to look again
content    the bytes of a file, plain or compressed, by offset
stream     what is known of a content: its identity and how far it was read; the stored position
strays     files that left the globs while nobody looked
known      all streams of an input, found by key, file, path and fingerprint
copies     is this file a copy of a stream that was read, and up to where?
lines      bytes → batches of lines            multiline  lines → events of several lines
tailer     the running input: who is served when, and the transaction of events and position
"""
