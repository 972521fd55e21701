/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints of native communicators, for the table of the backend. */
#ifndef TC_NATIVE_ENDPOINT_H
#define TC_NATIVE_ENDPOINT_H

#include "torchcomms/backend.h"

tc_status
tc_native_endpoint_open(const tc_comm_config *config, void **endpoint_p,
                        char handle_p[TC_INIT_HANDLE_BYTES], tc_error *err);

void
tc_native_endpoint_close(void *endpoint);

tc_status
tc_native_endpoint_check(void *endpoint, const char *handle, tc_error *err);

tc_status
tc_native_reconfigure(void *endpoint, const tc_comm_config *config,
                      const tc_members *members, void **comm_p, tc_error *err);

#endif
