"""Files are followed: from a glob to a batch.

options    what an input wants to have followed, and the door by which it has it
discovery  globs → the files of now, and the directories whose changes matter
watch      inotify: which of them changed, and when to look again
calls      what may hang, in threads of one input
content    the bytes of a file, plain or compressed, by offset
open_files the open files
sight      what a thread sees of the files whose turn it is
stream     what is known of a content: its identity and how far it was read; the stored position
rotated    files that left the globs while nobody looked
known      all streams of an input, found by key, file, path and fingerprint
copies     is this file a copy of a stream that was read, and up to where?
lines      bytes → batches of lines            multiline  lines → events of several lines
chunk      what is stored of a stream at once, and where it stands then
reader     one turn of a stream, from what was seen to what is stored
tailer     the running input: who is served when, and the transaction of events and position
"""
