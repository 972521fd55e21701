/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory for buffers: asks the backend's table. */
#include "core/memory.h"

#include "base/error.h"
#include "core/object.h"
#include "core/registry.h"

static tc_status
refuse(const char *backend, tc_error *err)
{
    return tc_error_set(err, TC_ERR_UNSUPPORTED,
                        "No allocator factory registered for backend '%s'", backend);
}

bool
tc_memory_is_supported(const char *backend, tc_device_type device)
{
    const tc_backend *table;

    return tc_registry_find(backend, device, &table, NULL) == TC_OK &&
           table->memory_alloc != NULL;
}

tc_status
tc_memory_alloc(const char *backend, tc_device device, struct tc_engine *engine,
                uint64_t bytes, tc_memory *memory_p, tc_error *err)
{
    const tc_backend *table;

    if (!tc_memory_is_supported(backend, device.type)) {
        return refuse(backend, err);
    }
    TC_TRY(tc_registry_find(backend, device.type, &table, err));
    return table->memory_alloc(engine, device, bytes, memory_p, err);
}

bool
tc_comm_has_memory(const tc_comm *comm)
{
    return comm->backend->memory_alloc != NULL;
}

tc_status
tc_comm_memory_alloc(const tc_comm *comm, uint64_t bytes, tc_memory *memory_p,
                     tc_error *err)
{
    if (!tc_comm_has_memory(comm)) {
        return refuse(comm->backend_name, err);
    }
    return comm->backend->memory_alloc(comm->engine, comm->device, bytes, memory_p,
                                       err);
}
