/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading and writing out the ring of a process page. */
#include "record/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/dtype.h"
#include "base/error.h"

enum { ENTRY_WORDS = sizeof(tc_ring_entry) / sizeof(uint64_t) };

/* A copy that is whole: the number stood there before and after. Each word is loaded
 * with acquire, so that the second look at the number is not earlier than the copy. */
static bool
read_entry(const tc_ring *ring, uint64_t number, tc_ring_entry *entry_p)
{
    const tc_ring_entry *entry = &ring->entries[number % TC_RING_ENTRIES];
    uint64_t words[ENTRY_WORDS];

    if (tc_load_acquire_u64(&entry->number) != number) {
        return false;
    }
    for (int i = 0; i < ENTRY_WORDS; i++) {
        words[i] = tc_load_acquire_u64((const uint64_t *)(const void *)entry + i);
    }
    memcpy(entry_p, words, sizeof(*entry_p));
    return tc_load_relaxed_u64(&entry->number) == number;
}

size_t
tc_record_read(const tc_ring *ring, tc_ring_entry *entries_p, size_t capacity)
{
    uint64_t last = tc_load_acquire_u64(&ring->next);
    uint64_t span = capacity < TC_RING_ENTRIES ? capacity : TC_RING_ENTRIES;
    uint64_t first = last > span ? last - span + 1 : 1;
    size_t count = 0;

    for (uint64_t number = first; number <= last; number++) {
        count += read_entry(ring, number, &entries_p[count]) ? 1 : 0;
    }
    return count;
}

static const char *
state_name(uint8_t state)
{
    switch (state) {
    case TC_RING_ISSUED:
        return "in flight";
    case TC_RING_COMPLETED:
        return "completed";
    case TC_RING_FAILED:
        return "failed";
    default:
        return "?";
    }
}

void
tc_record_describe(const tc_ring_entry *entry, char *text_p, size_t capacity)
{
    char ticks[48] = "";

    if (entry->end_tick > entry->start_tick) {
        snprintf(ticks, sizeof(ticks), " after %llu ticks",
                 (unsigned long long)(entry->end_tick - entry->start_tick));
    }
    snprintf(text_p, capacity,
             "%llu %s of %llu %s with %s, root %d, communicator %u, collective %llu: "
             "%s%s",
             (unsigned long long)entry->number, tc_op_name((tc_op_kind)entry->kind),
             (unsigned long long)entry->count, tc_dtype_name((tc_dtype)entry->dtype),
             tc_redop_name((tc_redop)entry->redop), entry->root, entry->comm,
             (unsigned long long)entry->seq, state_name(entry->state), ticks);
}

static tc_status
write_line(int fd, const char *text, tc_error *err)
{
    size_t bytes = strlen(text);

    for (size_t done = 0; done < bytes;) {
        ssize_t n = write(fd, text + done, bytes - done);

        if (n < 0) {
            return tc_error_errno(err, "write of the record");
        }
        done += (size_t)n;
    }
    return TC_OK;
}

tc_status
tc_record_dump(const tc_page *page, int fd, tc_error *err)
{
    tc_ring_entry *entries = calloc(TC_RING_ENTRIES, sizeof(*entries));
    char line[256];
    size_t count;
    tc_status status;

    if (entries == NULL) {
        return tc_error_set(err, TC_ERR_NO_MEMORY, "copy of the record");
    }
    count = tc_record_read(&page->ring, entries, TC_RING_ENTRIES);
    snprintf(line, sizeof(line), "process %d, %s, %zu operations\n", page->pid,
             tc_page_is_dead(page) ? "dead"
             : page->closed != 0   ? "closed"
                                   : "alive",
             count);
    status = write_line(fd, line, err);
    for (size_t i = 0; i < count && status == TC_OK; i++) {
        size_t used;

        tc_record_describe(&entries[i], line, sizeof(line) - 1);
        used = strlen(line);
        line[used] = '\n';
        line[used + 1] = '\0';
        status = write_line(fd, line, err);
    }
    free(entries);
    return status;
}
