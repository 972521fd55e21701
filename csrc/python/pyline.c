/* SPDX-License-Identifier: BSD-3-Clause */
/* torchcomms._core._line_round_trip: how near the CPUs of two processes are. */
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/line.h"
#include "python/py.h"

#define TIMEOUT_NS (60 * TC_NSEC_PER_SEC)

static tc_status
measure(int fd, bool leads, double *ns_p, tc_error *err)
{
    struct stat file;
    tc_line *line;
    tc_status status;

    if (fstat(fd, &file) != 0) {
        return tc_error_errno(err, "fstat of fd %d", fd);
    }
    if (file.st_size < (off_t)sizeof(*line)) {
        return tc_error_set(err, TC_ERR_INVALID_ARGUMENT,
                            "fd must be a file of at least %zu bytes, but it has %lld",
                            sizeof(*line), (long long)file.st_size);
    }
    line = mmap(NULL, sizeof(*line), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (line == MAP_FAILED) {
        return tc_error_errno(err, "mmap of fd %d", fd);
    }
    status = tc_line_round_trip(line, leads, TIMEOUT_NS, ns_p, err);
    munmap(line, sizeof(*line));
    return status;
}

PyObject *
tc_py_line_round_trip(PyObject *Py_UNUSED(module), PyObject *args)
{
    int fd;
    int leads;
    double ns;
    tc_error err = {0};
    tc_status status;

    if (!PyArg_ParseTuple(args, "ip:_line_round_trip", &fd, &leads)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    status = measure(fd, leads != 0, &ns, &err);
    Py_END_ALLOW_THREADS;
    return status != TC_OK ? tc_py_raise(status, &err) : PyFloat_FromDouble(ns * 1e-9);
}
