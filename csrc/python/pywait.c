/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting without the GIL, which is taken back now and then to serve signals. */
#include "base/clock.h"
#include "python/py.h"

/* How late Ctrl-C is noticed; taking the GIL from a busy thread takes about as long. */
#define LOOK_NS (10 * TC_NSEC_PER_MSEC)

static bool
serve_signals(void *ctx)
{
    tc_py_pause *pause = ctx;
    uint64_t now_ns = tc_clock_ns();
    bool failed;

    if (now_ns < pause->next_look_ns) {
        return false;
    }
    pause->next_look_ns = now_ns + LOOK_NS;
    PyEval_RestoreThread(pause->thread);
    /* The first for what other threads have left. */
    failed = Py_MakePendingCalls() != 0 || PyErr_CheckSignals() != 0;
    pause->thread = PyEval_SaveThread();
    return failed;
}

tc_interrupt
tc_py_pause_begin(tc_py_pause *pause)
{
    pause->next_look_ns = tc_clock_ns() + LOOK_NS;
    pause->thread = PyEval_SaveThread();
    return (tc_interrupt){serve_signals, pause};
}

void
tc_py_pause_end(tc_py_pause *pause)
{
    PyEval_RestoreThread(pause->thread);
}

tc_status
tc_py_wait_work(tc_work *work, tc_error *err)
{
    tc_py_pause pause;
    tc_interrupt interrupt = tc_py_pause_begin(&pause);
    tc_status status = tc_work_wait(work, TC_DEADLINE_NONE, &interrupt, err);

    tc_py_pause_end(&pause);
    /* The work may end in the moment in which a signal handler raises. */
    return PyErr_Occurred() ? TC_INTERRUPTED : status;
}
