/* SPDX-License-Identifier: BSD-3-Clause */
/* A tensor's element type and memory, as the core wants them. */
#ifndef TC_TORCH_TENSOR_H
#define TC_TORCH_TENSOR_H

#include "torch/torch.h"

#include "python/capi.h"

namespace torchcomms {

/* Throws for a type that cannot be communicated. */
tc_dtype
to_dtype(const at::Tensor &tensor);

/* Of a number that the core has checked. */
at::ScalarType
to_scalar_type(tc_dtype dtype);

/* For `tc_capi.set_view`. */
bool
view_plain(PyObject *obj, tc_py_view *view_p) noexcept;

} // namespace torchcomms

#endif
