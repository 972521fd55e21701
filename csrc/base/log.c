/* SPDX-License-Identifier: BSD-3-Clause */
/* Levels of the log and the writing of a line. */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/options.h"

#define LINE_BYTES 1024

static const char *const unit_names[] = {
#define ROW(id, name) #name,
    TC_LOG_UNITS(ROW)
#undef ROW
};

static const char *const level_names[] = {"off", "error", "warn", "info", "debug"};

#define LEVEL_COUNT (sizeof(level_names) / sizeof(level_names[0]))

uint32_t tc_log_levels[TC_LOG_UNIT_COUNT] = {
#define ROW(id, name) [TC_LOG_##id] = TC_LOG_WARN,
    TC_LOG_UNITS(ROW)
#undef ROW
};

static bool
find_name(const char *const *names, size_t count, const char *name, uint32_t *index_p)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(names[i], name) == 0) {
            *index_p = (uint32_t)i;
            return true;
        }
    }
    return false;
}

/* One piece between commas: a level for all units, or unit:level. */
static tc_status
apply_piece(char *piece, uint32_t *levels, tc_error *err)
{
    char *colon = strchr(piece, ':');
    const char *level_name = colon != NULL ? colon + 1 : piece;
    uint32_t level;
    uint32_t unit = 0;

    if (colon != NULL) {
        *colon = '\0';
        if (!find_name(unit_names, TC_LOG_UNIT_COUNT, piece, &unit)) {
            return tc_error_set(err, TC_ERR_INVALID_ARGUMENT, "%s: unknown unit '%s'",
                                tc_option_variable(TC_OPT_LOG), piece);
        }
    }
    if (!find_name(level_names, LEVEL_COUNT, level_name, &level)) {
        return tc_error_set(err, TC_ERR_INVALID_ARGUMENT,
                            "%s: level '%s', expected off, error, warn, info or debug",
                            tc_option_variable(TC_OPT_LOG), level_name);
    }
    if (colon != NULL) {
        levels[unit] = level;
        return TC_OK;
    }
    for (unit = 0; unit < TC_LOG_UNIT_COUNT; unit++) {
        levels[unit] = level;
    }
    return TC_OK;
}

tc_status
tc_log_configure(tc_error *err)
{
    char spec[256];
    uint32_t levels[TC_LOG_UNIT_COUNT];
    char *rest = spec;
    char *piece;

    TC_TRY(tc_option_string(TC_OPT_LOG, sizeof(spec), spec, err));
    for (int unit = 0; unit < TC_LOG_UNIT_COUNT; unit++) {
        levels[unit] = TC_LOG_WARN;
    }
    while ((piece = strsep(&rest, ",")) != NULL) {
        TC_TRY(apply_piece(piece, levels, err));
    }
    for (int unit = 0; unit < TC_LOG_UNIT_COUNT; unit++) {
        tc_store_relaxed_u32(&tc_log_levels[unit], levels[unit]);
    }
    return TC_OK;
}

static size_t
length_written(int printed, size_t room)
{
    if (printed < 0) {
        return 0;
    }
    return (size_t)printed < room ? (size_t)printed : room - 1;
}

void
tc_log_write(tc_log_unit unit, tc_log_level level, const char *format, ...)
{
    int saved = errno;
    char line[LINE_BYTES];
    size_t length;
    va_list args;

    length = length_written(snprintf(line, sizeof(line),
                                     "torchcomms[%d] %s %s: ", (int)getpid(),
                                     unit_names[unit], level_names[level]),
                            sizeof(line));
    va_start(args, format);
    /* The newline takes the place of the terminating zero. */
    length +=
        length_written(vsnprintf(line + length, sizeof(line) - length, format, args),
                       sizeof(line) - length);
    va_end(args);
    /* Texts of peers may hold anything; a line stays a line. */
    for (size_t i = 0; i < length; i++) {
        if ((unsigned char)line[i] < ' ') {
            line[i] = ' ';
        }
    }
    line[length++] = '\n';
    while (write(STDERR_FILENO, line, length) < 0 && errno == EINTR) {
    }
    errno = saved;
}
