/* A bulk endpoint that is never the bottleneck: it reads the bulk requests of Elasticsearch clients, counts, answers for
 * each item with its own id as Elasticsearch does (by `filter_path` or in full), and stores nothing. It also takes logs
 * by OTLP over HTTP, and answers what clients ask before their first bulk request.
 *
 *     cc -O2 -DWITH_ZLIB -o sink sink.c -lz        (without zlib, gzip bodies are answered 415)
 *     ./sink [PORT]                                 prints the port that it listens on, 127.0.0.1 only
 *
 * POST|PUT /_bulk, /{index}/_bulk     POST /v1/logs     GET|HEAD /, /_license, /_cluster/health, /_cat/health
 * POST /reset     GET /count -> what `counts` in events.h holds, first and last in seconds
 * POST /probes: from now on, until a reset, note when an item came that has `~probe:NUMBER` in it (a search that costs
 * as much as the rest of an item, so not always)     GET /probes -> [[NUMBER,NS],...], NS of CLOCK_MONOTONIC
 * POST /delay/MICROSECONDS: from now on, until a reset, wait for so long before each answer to a bulk request
 *
 * One thread, epoll, keep-alive connections. A request is taken when all of it is here; bodies by Content-Length or in
 * chunks, at most 256 MiB. An answer that does not fit the socket's buffer is sent on when there is room, and the next
 * request of that connection waits for it. It ends with the process that started it. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#ifdef WITH_ZLIB
#include <zlib.h>
#endif
#include "events.h"

#define MOST (256u << 20)
#define NOT_FOUND "{\"error\":\"no such path\",\"status\":404}"
#define NO_GZIP "{\"error\":\"the body is no gzip that can be read here\",\"status\":415}"
#define LITERAL(buffer, text) append(buffer, text, sizeof(text) - 1)

struct buffer { char *at; size_t length, room; };

struct connection {
    int fd;
    struct buffer in, body, out;   /* received, a body put together from chunks, what is still to be sent */
    size_t sent, scanned;          /* of `out`; of `in`, where the next chunk begins */
    int closing;
};

struct request {
    char *head, *body;
    size_t head_length, body_length, wire_length, total;
    int chunked, gzip, keep_alive, expects;
};

static int probing;
static unsigned long delay;        /* of each answer to a bulk request, in microseconds */
static struct buffer probes;       /* [NUMBER,NS], for each that came */
static struct buffer plain;        /* scratch for decompressed bodies */

/* -- buffers ---------------------------------------------------------------------------------------------------- */

static void reserve(struct buffer *b, size_t more) {
    if (b->length + more <= b->room) return;
    size_t room = b->room ? b->room : 65536;
    while (room < b->length + more) room *= 2;
    if (!(b->at = realloc(b->at, room))) abort();
    b->room = room;
}

static void append(struct buffer *b, const char *text, size_t length) {
    reserve(b, length);
    memcpy(b->at + b->length, text, length);
    b->length += length;
}

/* -- reading a request ------------------------------------------------------------------------------------------ */

/* The value of a header, or NULL; names are compared without case. */
static const char *header(const struct request *r, const char *name, size_t *length) {
    size_t n = strlen(name);
    const char *end = r->head + r->head_length, *line = memchr(r->head, '\n', r->head_length);
    while (line && ++line < end) {
        const char *next = memchr(line, '\n', end - line);
        if (!next) next = end;
        if ((size_t)(next - line) > n && line[n] == ':' && !strncasecmp(line, name, n)) {
            const char *value = line + n + 1;
            while (value < next && *value == ' ') value++;
            *length = next - value - (next > value && next[-1] == '\r');
            return value;
        }
        line = next;
    }
    return NULL;
}

static int header_has(const struct request *r, const char *name, const char *word) {
    size_t length;
    const char *value = header(r, name, &length);
    for (size_t i = 0, n = strlen(word); value && i + n <= length; i++)
        if (!strncasecmp(value + i, word, n)) return 1;
    return 0;
}

/* Moves whole chunks into c->body; 1: the last one is here, 0: more to come, -1: malformed. */
static int unchunk(struct connection *c, struct request *r) {
    for (;;) {
        char *line = c->in.at + c->scanned, *end = c->in.at + c->in.length;
        char *newline = memchr(line, '\n', end - line);
        if (!newline) return end - line > 100 ? -1 : 0;
        char *stop;
        unsigned long size = strtoul(line, &stop, 16);
        if (stop == line || size > MOST || c->body.length + size > MOST) return -1;
        if ((size_t)(end - newline - 1) < size + 2) return 0;
        c->scanned = newline + 1 + size + 2 - c->in.at;
        if (!size) {
            r->body = c->body.at, r->body_length = c->body.length, r->total = c->scanned;
            return 1;
        }
        append(&c->body, newline + 1, size);
    }
}

/* 1: a whole request is here, 0: more to come, -1: malformed. */
static int take(struct connection *c, struct request *r) {
    char *end = memmem(c->in.at, c->in.length < 65536 ? c->in.length : 65536, "\r\n\r\n", 4);
    if (!end) return c->in.length >= 65536 ? -1 : 0;
    *r = (struct request){.head = c->in.at, .head_length = end + 2 - c->in.at};
    size_t after = r->head_length + 2, length;
    r->chunked = header_has(r, "Transfer-Encoding", "chunked");
    r->gzip = header_has(r, "Content-Encoding", "gzip");
    r->keep_alive = !header_has(r, "Connection", "close");
    r->expects = header_has(r, "Expect", "100-continue");
    if (r->chunked) {
        if (c->scanned < after) c->scanned = after;
        int whole = unchunk(c, r);
        r->wire_length = r->body_length;
        return whole;
    }
    const char *value = header(r, "Content-Length", &length);
    r->body_length = value ? strtoul(value, NULL, 10) : 0;
    if (r->body_length > MOST) return -1;
    r->wire_length = r->body_length, r->body = c->in.at + after, r->total = after + r->body_length;
    return c->in.length >= r->total;
}

static int decompress(struct request *r) {
#ifdef WITH_ZLIB
    static z_stream stream;
    static int ready;
    if (!ready) ready = inflateInit2(&stream, 31) == Z_OK;
    if (!ready || inflateReset(&stream) != Z_OK) return 0;
    stream.next_in = (Bytef *)r->body, stream.avail_in = r->body_length;
    for (plain.length = 0;;) {
        reserve(&plain, 1 << 20);
        stream.next_out = (Bytef *)plain.at + plain.length, stream.avail_out = plain.room - plain.length;
        int answer = inflate(&stream, Z_NO_FLUSH);
        plain.length = (char *)stream.next_out - plain.at;
        if (answer == Z_STREAM_END) break;
        if (answer != Z_OK || plain.length > MOST) return 0;
    }
    r->body = plain.at, r->body_length = plain.length;
    return 1;
#else
    (void)r;
    return 0;
#endif
}

/* -- answers ---------------------------------------------------------------------------------------------------- */

static void answer(struct connection *c, const char *status, const char *type, const char *body, size_t length) {
    char head[256];
    int n = snprintf(head, sizeof head,
                     "HTTP/1.1 %s\r\nX-Elastic-Product: Elasticsearch\r\nContent-Type: application/%s\r\n"
                     "Content-Length: %zu\r\n\r\n", status, type, length);
    append(&c->out, head, n);
    append(&c->out, body, length);
}

static void answer_text(struct connection *c, const char *status, const char *body) {
    answer(c, status, "json", body, strlen(body));
}

/* What clients ask before their first bulk request. */
static const struct { const char *path, *body; } questions[] = {
    {"/", "{\"name\":\"sink\",\"cluster_name\":\"benchmark\",\"cluster_uuid\":\"c2luaw\",\"version\":{"
          "\"number\":\"8.19.4\",\"build_flavor\":\"default\"},\"tagline\":\"You Know, for Search\"}"},
    {"/_license", "{\"license\":{\"status\":\"active\",\"uid\":\"benchmark\",\"type\":\"basic\"}}"},
    {"/_cluster/health", "{\"cluster_name\":\"benchmark\",\"status\":\"green\",\"timed_out\":false}"},
    {"/_cat/health", "[{\"cluster\":\"benchmark\",\"status\":\"green\"}]"},
};

static int in_line(const char *line, size_t length, const char *word) {
    return memmem(line, length, word, strlen(word)) != NULL;
}

/* Answers for every pair of lines, with the id that its action names; returns 0 if the body is no bulk request. */
static int bulk_items(const struct request *r, struct buffer *to, int all, int id_wanted, int status_wanted,
                      uint64_t *items) {
    char *at = r->body, *end = r->body + r->body_length;
    for (*items = 0; at < end; ++*items) {
        char *action_end = memchr(at, '\n', end - at);
        char *source_end = action_end ? memchr(action_end + 1, '\n', end - action_end - 1) : NULL;
        if (!source_end) return 0;
        int create = action_end - at > 9 && !memcmp(at, "{\"create\"", 9);
        if (!create && (action_end - at <= 8 || memcmp(at, "{\"index\"", 8))) return 0;
        reserve(to, 1024);
        if (*items) LITERAL(to, ",");
        if (create) LITERAL(to, "{\"create\":{"); else LITERAL(to, "{\"index\":{");
        if (all) LITERAL(to, "\"_index\":\"logs-benchmark-default\",");
        char *id = all || id_wanted ? memmem(at, action_end - at, "\"_id\":\"", 7) : NULL;
        if (id) {
            char *id_end = memchr(id + 7, '"', action_end - id - 7);
            if (!id_end) return 0;
            append(to, id, id_end + 1 - id);
            if (all || status_wanted) LITERAL(to, ",");
        }
        if (all) LITERAL(to, "\"_version\":1,\"result\":\"created\",\"_shards\":{\"total\":1,\"successful\":1,\"failed\":0},"
                             "\"_seq_no\":1,\"_primary_term\":1,");
        if (all || status_wanted) LITERAL(to, "\"status\":201");
        LITERAL(to, "}}");
        mark(action_end + 1, source_end);
        at = source_end + 1;
    }
    return *items > 0;
}

static void note_probes(const struct request *r) {
    char *at = r->body, *end = r->body + r->body_length, text[64];
    while ((at = memmem(at, end - at, "~probe:", 7))) {
        unsigned long long number = strtoull(at + 7, &at, 10);
        append(&probes, text, snprintf(text, sizeof text, "%s[%llu,%lu]", probes.length ? "," : "", number, counts.last));
    }
}

static void answer_probes(struct connection *c) {
    struct buffer body = {0};
    LITERAL(&body, "[");
    append(&body, probes.at, probes.length);
    LITERAL(&body, "]");
    answer(c, "200 OK", "json", body.at, body.length);
    free(body.at);
}

static void bulk(struct connection *c, struct request *r, const char *target, size_t target_length) {
    static struct buffer body;
    const char *filter = memmem(target, target_length, "filter_path=", 12);
    size_t length = filter ? target + target_length - filter : 0;
    uint64_t items;
    body.length = 0;
    LITERAL(&body, "{");
    if (!filter || in_line(filter, length, "took")) LITERAL(&body, "\"took\":1,");
    if (!filter || in_line(filter, length, "errors")) LITERAL(&body, "\"errors\":false,");
    LITERAL(&body, "\"items\":[");
    if (!bulk_items(r, &body, !filter, in_line(filter ? filter : "", length, "_id"),
                    in_line(filter ? filter : "", length, "status"), &items)) {
        answer_text(c, "400 Bad Request", "{\"error\":{\"type\":\"illegal_argument_exception\",\"reason\":"
                    "\"The bulk request must be terminated by a newline [\\\\n]\"},\"status\":400}");
        return;
    }
    LITERAL(&body, "]}");
    if (delay) usleep(delay);
    count(items, r->body_length, r->wire_length);
    if (probing) note_probes(r);
    answer(c, "200 OK", "json", body.at, body.length);
}

static void otlp(struct connection *c, const struct request *r) {
    uint64_t items = 0;
    if (header_has(r, "Content-Type", "application/json"))
        otlp_records_in_json(r->body, r->body + r->body_length, &items);
    else if (!header_has(r, "Content-Type", "application/x-protobuf") ||
             !otlp_records(r->body, r->body + r->body_length, 0, &items))
        items = 0;
    if (!items) {
        answer(c, "400 Bad Request", "x-protobuf", "", 0);
        return;
    }
    count(items, r->body_length, r->wire_length);
    if (probing) note_probes(r);
    answer(c, "200 OK", "x-protobuf", "", 0);      /* in JSON too: an empty ExportLogsServiceResponse: all was taken */
}

static void answer_counts(struct connection *c) {
    char text[320];
    snprintf(text, sizeof text,
             "{\"requests\":%lu,\"items\":%lu,\"distinct\":%lu,\"unknown\":%lu,\"bytes\":%lu,\"wire_bytes\":%lu,"
             "\"first\":%lu.%09lu,\"last\":%lu.%09lu}",
             counts.requests, counts.items, counts.distinct, counts.unknown, counts.bytes, counts.wire_bytes,
             counts.first / 1000000000, counts.first % 1000000000, counts.last / 1000000000, counts.last % 1000000000);
    answer_text(c, "200 OK", text);
}

/* Answers a GET or a HEAD; a HEAD gets the head alone. */
static void look_up(struct connection *c, const char *target, size_t path, int head_only) {
    const char *status = "404 Not Found", *body = NOT_FOUND;
    for (size_t i = 0; i < sizeof questions / sizeof *questions; i++)
        if (path == strlen(questions[i].path) && !memcmp(target, questions[i].path, path))
            status = "200 OK", body = questions[i].body;
    answer_text(c, status, body);
    if (head_only) c->out.length -= strlen(body);
}

static void respond(struct connection *c, struct request *r) {
    char *method_end = memchr(r->head, ' ', r->head_length), *target = method_end + 1;
    char *end = method_end ? memchr(target, ' ', r->head + r->head_length - target) : NULL;
    if (!end) {
        c->closing = 1;
        answer_text(c, "400 Bad Request", "{}");
        return;
    }
    char *query = memchr(target, '?', end - target);
    size_t path = (query ? query : end) - target;
    int get = !strncmp(r->head, "GET ", 4), head_only = !strncmp(r->head, "HEAD ", 5);
    if (get && path == 6 && !memcmp(target, "/count", 6)) {
        answer_counts(c);
    } else if (get && path == 7 && !memcmp(target, "/probes", 7)) {
        answer_probes(c);
    } else if (get || head_only) {
        look_up(c, target, path, head_only);
    } else if (r->gzip && !decompress(r)) {
        answer_text(c, "415 Unsupported Media Type", NO_GZIP);
    } else if (path >= 6 && !memcmp(target + path - 6, "/_bulk", 6)) {
        bulk(c, r, target, end - target);
    } else if (path == 8 && !memcmp(target, "/v1/logs", 8)) {
        otlp(c, r);
    } else if (path == 6 && !memcmp(target, "/reset", 6)) {
        memset(&counts, 0, sizeof counts);
        probing = probes.length = delay = 0;
        answer_text(c, "200 OK", "{}");
    } else if (path > 7 && !memcmp(target, "/delay/", 7)) {
        delay = strtoul(target + 7, NULL, 10);
        answer_text(c, "200 OK", "{}");
    } else if (path == 7 && !memcmp(target, "/probes", 7)) {
        probing = 1;
        answer_text(c, "200 OK", "{}");
    } else {
        answer_text(c, "404 Not Found", NOT_FOUND);
    }
}

/* -- connections ------------------------------------------------------------------------------------------------ */

/* Sends what is left; 1: all is sent, 0: the socket is full, -1: the peer is gone. */
static int flush(struct connection *c) {
    while (c->sent < c->out.length) {
        ssize_t n = send(c->fd, c->out.at + c->sent, c->out.length - c->sent, MSG_NOSIGNAL);
        if (n < 0) return errno == EAGAIN ? 0 : -1;
        c->sent += n;
    }
    c->out.length = c->sent = 0;
    return 1;
}

/* Answers every request that is here as long as answers can be sent; -1 if the connection is to be closed. */
static int serve(struct connection *c) {
    for (;;) {
        int done = flush(c);
        if (done <= 0) return done;
        if (c->closing) return -1;
        struct request r = {0};
        int whole = c->in.length ? take(c, &r) : 0;
        if (whole < 0) return -1;
        if (!whole) {
            if (r.expects && c->in.length == r.head_length + 2)
                LITERAL(&c->out, "HTTP/1.1 100 Continue\r\n\r\n");
            return flush(c) < 0 ? -1 : 0;
        }
        respond(c, &r);
        c->closing |= !r.keep_alive;
        memmove(c->in.at, c->in.at + r.total, c->in.length - r.total);
        c->in.length -= r.total;
        c->body.length = c->scanned = 0;
    }
}

/* Takes what has arrived; -1 if the connection is to be closed. */
static int receive(struct connection *c) {
    for (int turns = 0; turns < 16; turns++) {
        reserve(&c->in, 1 << 20);
        ssize_t n = recv(c->fd, c->in.at + c->in.length, c->in.room - c->in.length, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN)) return -1;
        if (n < 0) return 0;
        c->in.length += n;
    }
    return 0;
}

static void drop(struct connection *c) {
    close(c->fd);
    free(c->in.at), free(c->body.at), free(c->out.at), free(c);
}

static void admit(int loop, int listener) {
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), on = 1;
    struct connection *c = fd < 0 ? NULL : calloc(1, sizeof *c);
    if (!c) return;
    c->fd = fd;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(loop, EPOLL_CTL_ADD, fd, &event);
}

int main(int argc, char **argv) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons(argc > 1 ? atoi(argv[1]) : 0)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1, loop = epoll_create1(0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 64) ||
        getsockname(listener, (struct sockaddr *)&address, &size)) {
        perror("sink");
        return 1;
    }
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    struct epoll_event events[64], event = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(loop, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int n = epoll_wait(loop, events, 64, -1);
        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;
            if (!c) {
                admit(loop, listener);
                continue;
            }
            if (((events[i].events & ~EPOLLOUT) && receive(c) < 0) || serve(c) < 0) {
                drop(c);
                continue;
            }
            /* While an answer waits for room, no more is read: the client is slower than we are. */
            event = (struct epoll_event){.events = c->out.length ? EPOLLOUT : EPOLLIN, .data.ptr = c};
            epoll_ctl(loop, EPOLL_CTL_MOD, c->fd, &event);
        }
    }
}
