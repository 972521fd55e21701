/* SPDX-License-Identifier: BSD-3-Clause */
/* Backends by name and device type, their tables completed with defaults. */
#ifndef TC_CORE_REGISTRY_H
#define TC_CORE_REGISTRY_H

#include "torchcomms/backend.h"

/* Makes `backend` answer to `name` for its device type. A name already taken for that
 * device type keeps its first registration. Copies the table, filling what is missing
 * with defaults; TC_ERR_INVALID_ARGUMENT for another ABI number. */
tc_status
tc_registry_add(const char *name, const tc_backend *backend, tc_error *err);

/* The completed table, valid for the life of the process. TC_ERR_INVALID_ARGUMENT with
 * the known names where there is none for this device. */
tc_status
tc_registry_find(const char *name, tc_device_type device, const tc_backend **backend_p,
                 tc_error *err);

/* Whether the name is known for any device. */
bool
tc_registry_has(const char *name);

/* Whether every backend of that name makes communicators of one rank only. */
bool
tc_registry_is_solitary(const char *name);

#endif
