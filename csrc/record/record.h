/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads the record of a process, one's own or a neighbour's, also after its death. */
#ifndef TC_RECORD_RECORD_H
#define TC_RECORD_RECORD_H

#include "loop/page.h"

/* Copies the last operations, oldest first, at most `capacity`; entries that their
 * owner is just rewriting are left out. Returns how many were copied. Takes no lock and
 * stops nobody. */
size_t
tc_record_read(const tc_ring *ring, tc_ring_entry *entries_p, size_t capacity);

/* "17 all_reduce of 8 float32 with SUM, communicator 0, collective 3: completed after
 * 1204 ticks", without a newline; cut where it does not fit. */
void
tc_record_describe(const tc_ring_entry *entry, char *text_p, size_t capacity);

/* Writes the whole record as lines to `fd`, with a head that names the process and says
 * whether it lives. */
tc_status
tc_record_dump(const tc_page *page, int fd, tc_error *err);

#endif
