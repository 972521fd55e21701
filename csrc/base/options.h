/* SPDX-License-Identifier: BSD-3-Clause */
/* Every environment variable that torchcomms reads, in one table, and its reading. */
#ifndef TC_BASE_OPTIONS_H
#define TC_BASE_OPTIONS_H

#include "torchcomms/types.h"

/* X(ID, variable, type, default, min, max, help)
 *
 * The name of an option is its ID in lower case. The default is text, as a user would
 * write it; "" means that there is none (a string is then empty, see tc_option_given
 * for the others). The range of a STRING is its greatest length. docs/options.md is
 * made from these rows by `make docs`. */
#define TC_OPTIONS(X) \
    X(LOG, "TORCHCOMM_LOG", STRING, "warn", 0, 255, \
      "What is written to stderr: off, error, warn, info or debug, and after commas " \
      "the same for single units, as in `warn,tcp:debug`.") \
    X(TIMEOUT_SECONDS, "TORCHCOMM_TIMEOUT_SECONDS", INT, "600", 1, INT32_MAX, \
      "Deadline of an operation where new_comm is given no timeout, in seconds.") \
    X(ABORT_ON_ERROR, "TORCHCOMM_ABORT_ON_ERROR", BOOL, "true", 0, 1, \
      "Default of new_comm's abort_process_on_timeout_or_error.") \
    X(HOST_ID, "TORCHCOMM_HOST_ID", STRING, "", 0, 63, \
      "Ranks with different values never share memory, even on one host; to test " \
      "many hosts on one.") \
    X(ISA, "TORCHCOMM_ISA", STRING, "", 0, 31, \
      "Greatest instruction set the reduction kernels may use: baseline, avx2 or " \
      "avx512. Results are the same bits with each.") \
    X(RANK, "TORCHCOMM_RANK", INT, "-1", INT32_MIN, INT32_MAX, \
      "Rank of this process; asked before the launchers' variables. Negative: none.") \
    X(SIZE, "TORCHCOMM_SIZE", INT, "0", INT32_MIN, INT32_MAX, \
      "Number of ranks, with TORCHCOMM_RANK. Below 1: none.") \
    X(RANKSIZE_QUERY_METHOD, "TORCHCOMM_BOOTSTRAP_RANKSIZE_QUERY_METHOD", STRING, \
      "auto", 0, 31, \
      "Whose variables give rank and size: auto (all), torchrun, mpi or pals; any " \
      "other word means those of torchcomms alone.") \
    X(OMPI_RANK, "OMPI_COMM_WORLD_RANK", INT, "-1", INT32_MIN, INT32_MAX, \
      "Rank as Open MPI's mpiexec gives it.") \
    X(OMPI_SIZE, "OMPI_COMM_WORLD_SIZE", INT, "0", INT32_MIN, INT32_MAX, \
      "Number of ranks as Open MPI's mpiexec gives it.") \
    X(PMI_RANK, "PMI_RANK", INT, "-1", INT32_MIN, INT32_MAX, \
      "Rank as MPICH's and Intel's mpiexec give it.") \
    X(PMI_SIZE, "PMI_SIZE", INT, "0", INT32_MIN, INT32_MAX, \
      "Number of ranks as MPICH's and Intel's mpiexec give it.") \
    X(PALS_RANK, "PALS_RANKID", INT, "-1", INT32_MIN, INT32_MAX, \
      "Rank as PALS gives it.") \
    X(PALS_SIZE, "PALS_SIZE", INT, "0", INT32_MIN, INT32_MAX, \
      "Number of ranks as PALS gives it.") \
    X(TORCHRUN_RANK, "RANK", INT, "-1", INT32_MIN, INT32_MAX, \
      "Rank as torchrun gives it.") \
    X(TORCHRUN_SIZE, "WORLD_SIZE", INT, "0", INT32_MIN, INT32_MAX, \
      "Number of ranks as torchrun gives it.") \
    X(AGENT_STORE, "TORCHELASTIC_USE_AGENT_STORE", BOOL, "false", 0, 1, \
      "Set by torchrun whose agent listens on MASTER_PORT: rank 0 connects too.") \
    X(MASTER_ADDR, "MASTER_ADDR", STRING, "", 0, 1023, \
      "Host of the store for the start-up, where new_comm is given no store.") \
    X(MASTER_PORT, "MASTER_PORT", INT, "-1", -1, 65535, \
      "Port of the store for the start-up, where new_comm is given no store.") \
    X(GLOO_HOSTNAME, "TORCHCOMM_GLOO_HOSTNAME", STRING, "", 0, 255, \
      "Name or address of this host that the backend gloo listens at; the hint " \
      "`hostname` goes before it.") \
    X(GLOO_INTERFACE, "TORCHCOMM_GLOO_INTERFACE", STRING, "", 0, 255, \
      "Network interface that the backend gloo listens at, where no host name is " \
      "given; the hint `interface` goes before it.") \
    X(SERIALIZATION, "TORCHCOMMS_SERIALIZATION", STRING, "", 0, 31, \
      "How torchcomms.objcol writes objects: as torch.save does, or `pickle`. Read " \
      "once; no other word is legal.") \
    X(HEALTH_CHECK_WAIT_MS, "TORCHCOMM_HEALTH_CHECK_WAIT_MS", INT, "-1", -1, 86400000, \
      "How long an abort hook of the flight recorder waits where an error aborts the " \
      "process, so that a dump can be fetched before, in milliseconds. Negative: " \
      "15000, and on a CPU device, where no error aborts the process, not at all.") \
    X(FR_BUFFER_SIZE, "TORCHCOMM_FR_BUFFER_SIZE", INT, "2000", 1, 16777216, \
      "Entries of the flight recorder that the process shares.") \
    X(FR_DUMP_TEMP_FILE, "TORCHCOMM_FR_DUMP_TEMP_FILE", STRING, "", 0, 1023, \
      "File of a flight recorder dump, without the rank, which is appended. Empty: " \
      "torch/comm_lib_trace_rank_ in XDG_CACHE_HOME. Read at the first dump.") \
    X(FR_DUMP_DYNAMIC_FILE_NAME, "TORCHCOMM_FR_DUMP_DYNAMIC_FILE_NAME", BOOL, "false", \
      0, 1, \
      "TORCHCOMM_FR_DUMP_TEMP_FILE is the whole name, and is read at each dump.") \
    X(CACHE_HOME, "XDG_CACHE_HOME", STRING, "", 0, 1023, \
      "Folder for flight recorder dumps. Empty: .cache in HOME.") \
    X(HOME, "HOME", STRING, "", 0, 1023, "The user's folder, see XDG_CACHE_HOME.")

typedef enum tc_option {
#define TC_OPTION_ID(id, variable, type, fallback, min, max, help) TC_OPT_##id,
    TC_OPTIONS(TC_OPTION_ID)
#undef TC_OPTION_ID
        TC_OPT_COUNT
} tc_option;

/* The environment is read at each call, so that a communicator sees what is set when it
 * is made. Blanks around a value are ignored and an empty value means the default; a
 * value that cannot be read is TC_ERR_INVALID_ARGUMENT, naming variable and value.
 * Asking a row for another type than its own is TC_ERR_INTERNAL. */

/* `1 true yes y` or `0 false no n`, in any case. */
tc_status
tc_option_bool(tc_option option, bool *value_p, tc_error *err);

tc_status
tc_option_int(tc_option option, int64_t *value_p, tc_error *err);

/* Writes at most `capacity` bytes with the terminating zero. */
tc_status
tc_option_string(tc_option option, size_t capacity, char *value_p, tc_error *err);

/* Whether the variable is set to more than blanks. */
bool
tc_option_given(tc_option option);

/* The variable's name, for messages. */
const char *
tc_option_variable(tc_option option);

#endif
