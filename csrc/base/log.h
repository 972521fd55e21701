/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages to stderr, with a level per unit: TORCHCOMM_LOG=warn,tcp:debug. */
#ifndef TC_BASE_LOG_H
#define TC_BASE_LOG_H

#include "base/atomic.h"
#include "torchcomms/types.h"

/* Parts of the code whose level can be set; TORCHCOMM_LOG with another is refused. */
#define TC_LOG_UNITS(X) \
    X(CORE, core) \
    X(LOOP, loop) \
    X(COLL, coll) \
    X(REDUCE, reduce) \
    X(SHM, shm) \
    X(TCP, tcp) \
    X(NATIVE, native) \
    X(FAKE, fake) \
    X(RECORD, record) \
    X(PYTHON, python)

typedef enum tc_log_unit {
#define TC_LOG_UNIT_ID(id, name) TC_LOG_##id,
    TC_LOG_UNITS(TC_LOG_UNIT_ID)
#undef TC_LOG_UNIT_ID
        TC_LOG_UNIT_COUNT
} tc_log_unit;

typedef enum tc_log_level {
    TC_LOG_OFF = 0,
    TC_LOG_ERROR = 1,
    TC_LOG_WARN = 2,
    TC_LOG_INFO = 3,
    TC_LOG_DEBUG = 4,
} tc_log_level;

/* One line at WARN from unit SHM:
 *     TC_LOG(SHM, WARN, "rank %d: segment of %zu bytes not released", rank, size);
 * Lower case, no `=`, sizes with units. The arguments are evaluated only where the
 * level is on. Not for the small-message path. */
#define TC_LOG(unit, level, ...) \
    do { \
        if (tc_log_enabled(TC_LOG_##unit, TC_LOG_##level)) { \
            tc_log_write(TC_LOG_##unit, TC_LOG_##level, __VA_ARGS__); \
        } \
    } while (0)

/* Of the process, not of a rank: stderr is the process's too. */
extern uint32_t tc_log_levels[TC_LOG_UNIT_COUNT];

static inline bool
tc_log_enabled(tc_log_unit unit, tc_log_level level)
{
    return (uint32_t)level <= tc_load_relaxed_u32(&tc_log_levels[unit]);
}

/* Sets all levels from TORCHCOMM_LOG; called when a communicator is made. A text that
 * cannot be read changes nothing. */
tc_status
tc_log_configure(tc_error *err);

/* Writes one line by one write(2), whatever the level; errno is kept. */
void
tc_log_write(tc_log_unit unit, tc_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
