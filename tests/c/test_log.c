/* SPDX-License-Identifier: BSD-3-Clause */
/* The log: levels from TORCHCOMM_LOG, lazy arguments, and one line a message. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "support/check.h"

static int evaluated;

static int
counted(int value)
{
    evaluated++;
    return value;
}

static tc_status
configure(const char *spec, tc_error *err)
{
    setenv("TORCHCOMM_LOG", spec, 1);
    return tc_log_configure(err);
}

static void
test_levels(void)
{
    CHECK(tc_log_enabled(TC_LOG_SHM, TC_LOG_WARN));
    CHECK(!tc_log_enabled(TC_LOG_SHM, TC_LOG_INFO));
    CHECK(configure("error,shm:debug", NULL) == TC_OK);
    CHECK(tc_log_enabled(TC_LOG_SHM, TC_LOG_DEBUG));
    CHECK(tc_log_enabled(TC_LOG_CORE, TC_LOG_ERROR));
    CHECK(!tc_log_enabled(TC_LOG_CORE, TC_LOG_WARN));
    CHECK(configure("tcp:info", NULL) == TC_OK);
    CHECK(tc_log_enabled(TC_LOG_TCP, TC_LOG_INFO));
    CHECK(tc_log_enabled(TC_LOG_CORE, TC_LOG_WARN));
    CHECK(!tc_log_enabled(TC_LOG_SHM, TC_LOG_INFO));
    CHECK(configure("off", NULL) == TC_OK);
    CHECK(!tc_log_enabled(TC_LOG_CORE, TC_LOG_ERROR));
    CHECK(configure("", NULL) == TC_OK);
    CHECK(tc_log_enabled(TC_LOG_CORE, TC_LOG_WARN));
}

static void
test_refused(void)
{
    tc_error err;

    CHECK(configure("core:debug", &err) == TC_OK);
    CHECK(configure("off,tpc:debug", &err) == TC_ERR_INVALID_ARGUMENT);
    CHECK(strstr(err.message, "TORCHCOMM_LOG") && strstr(err.message, "'tpc'"));
    CHECK(configure("off,loud", &err) == TC_ERR_INVALID_ARGUMENT);
    CHECK(strstr(err.message, "TORCHCOMM_LOG") && strstr(err.message, "'loud'"));
    CHECK(configure("warn,", &err) == TC_ERR_INVALID_ARGUMENT);
    CHECK(tc_log_enabled(TC_LOG_CORE, TC_LOG_DEBUG));
}

/* What the messages of `test_lines` put on stderr. */
static void
test_lines(void)
{
    int pipe_fds[2];
    int saved = dup(STDERR_FILENO);
    char text[8192];
    char expected[64];
    char big[3000];
    ssize_t bytes;

    CHECK(saved >= 0 && pipe(pipe_fds) == 0);
    CHECK(configure("warn", NULL) == TC_OK);
    memset(big, 'x', sizeof(big) - 1);
    big[sizeof(big) - 1] = '\0';
    dup2(pipe_fds[1], STDERR_FILENO);
    close(pipe_fds[1]);
    errno = EBUSY;
    TC_LOG(SHM, INFO, "not written %d", counted(1));
    TC_LOG(SHM, WARN, "rank %d\nsaid", counted(3));
    TC_LOG(CORE, ERROR, "%s", big);
    CHECK(errno == EBUSY);
    dup2(saved, STDERR_FILENO);
    close(saved);
    bytes = read(pipe_fds[0], text, sizeof(text) - 1);
    CHECK(bytes > 0);
    text[bytes] = '\0';
    CHECK(read(pipe_fds[0], big, sizeof(big)) == 0);
    close(pipe_fds[0]);

    CHECK(evaluated == 1);
    snprintf(expected, sizeof(expected), "torchcomms[%d] shm warn: rank 3 said\n",
             (int)getpid());
    CHECK(strncmp(text, expected, strlen(expected)) == 0);
    snprintf(expected, sizeof(expected), "torchcomms[%d] core error: xxx",
             (int)getpid());
    CHECK(strncmp(strchr(text, '\n') + 1, expected, strlen(expected)) == 0);
    CHECK(strlen(strchr(text, '\n') + 1) == 1024 && text[bytes - 1] == '\n');
}

int
main(void)
{
    unsetenv("TORCHCOMM_LOG");
    test_levels();
    test_refused();
    test_lines();
    return 0;
}
