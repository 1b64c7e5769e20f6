/* What has arrived: the items of a body, and which lines of the job they hold.
 *
 * No two lines of the job share a timestamp `[DD/Jan/2026:HH:MM:SS` (a day for each 86,400 lines, 28 days), so a bit for
 * each second tells a line that came twice from one that never came, whatever the client wrote around it. A line's hash
 * would not do: each client escapes quotes and slashes in its own way. */
#include <stdint.h>
#include <string.h>
#include <time.h>

#define MOST_LINES (28 * 86400)

static struct {
    uint64_t requests, items, bytes, wire_bytes, distinct, unknown;
    uint64_t first, last;          /* nanoseconds of CLOCK_MONOTONIC at which the first and the last item came */
    uint64_t seen[(MOST_LINES + 63) / 64];
} counts;

/* The number of the line whose timestamp begins here; JSON may write / as \/. -1: no timestamp of the job. */
static long line_number(const char *at, const char *end) {
    int digits[8], n = 0;
    for (const char *shape = "##/Jan/2026:##:##:##"; *shape; shape++, at++) {
        if (at < end && *shape == '/' && *at == '\\') at++;
        if (at >= end) return -1;
        if (*shape != '#' ? *at != *shape : *at < '0' || *at > '9') return -1;
        if (*shape == '#') digits[n++] = *at - '0';
    }
    long day = digits[0] * 10 + digits[1] - 1, hour = digits[2] * 10 + digits[3];
    long minute = digits[4] * 10 + digits[5], second = digits[6] * 10 + digits[7];
    if (day < 0 || day >= 28 || hour > 23 || minute > 59 || second > 59) return -1;
    return ((day * 24 + hour) * 60 + minute) * 60 + second;
}

/* Notes which line an item holds. */
static void mark(const char *at, const char *end) {
    while ((at = memchr(at, '[', end - at))) {
        long number = line_number(++at, end);
        if (number < 0) continue;
        uint64_t bit = 1ull << (number & 63), *word = &counts.seen[number >> 6];
        counts.distinct += !(*word & bit);
        *word |= bit;
        return;
    }
    counts.unknown++;
}

/* Counts a request whose items are all marked. */
static void count(uint64_t items, size_t bytes, size_t wire_bytes) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    counts.last = now.tv_sec * 1000000000ull + now.tv_nsec;
    if (!counts.items) counts.first = counts.last;
    counts.requests++, counts.items += items, counts.bytes += bytes, counts.wire_bytes += wire_bytes;
}

static int varint(const char **at, const char *end, uint64_t *value) {
    *value = 0;
    for (int shift = 0; *at < end && shift < 64; shift += 7) {
        unsigned char byte = *(*at)++;
        *value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) return 1;
    }
    return 0;
}

/* Marks the log records of one in JSON, by their bodies; a quote within a text is escaped. */
static void otlp_records_in_json(const char *at, const char *end, uint64_t *items) {
    static const char body[] = "\"body\":{";
    at = memmem(at, end - at, body, sizeof body - 1);
    for (const char *next; at; at = next, ++*items) {
        next = memmem(at + 1, end - at - 1, body, sizeof body - 1);
        mark(at, next ? next : end);
    }
}

/* Marks the log records of an OTLP ExportLogsServiceRequest (protobuf): field 1 holds resources, of each field 2 scopes,
 * of each field 2 records. Returns 0 if it is none. */
static int otlp_records(const char *at, const char *end, int depth, uint64_t *items) {
    static const uint64_t path[] = {1, 2, 2};
    if (depth == 3) {
        mark(at, end);
        ++*items;
        return 1;
    }
    while (at < end) {
        uint64_t tag, length = 0, value;
        if (!varint(&at, end, &tag)) return 0;
        switch (tag & 7) {
        case 0: if (!varint(&at, end, &value)) return 0; break;
        case 1: length = 8; break;
        case 2: if (!varint(&at, end, &length)) return 0; break;
        case 5: length = 4; break;
        default: return 0;
        }
        if (length > (uint64_t)(end - at)) return 0;
        if (tag == (path[depth] << 3 | 2) && !otlp_records(at, at + length, depth + 1, items)) return 0;
        at += length;
    }
    return 1;
}
