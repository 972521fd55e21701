/* SPDX-License-Identifier: BSD-3-Clause */
/* The element types of torch, and the short way to a tensor's memory. */
#include "torch/tensor.h"

#include "base/dtype.h"

namespace torchcomms {

namespace {

/* TC_DTYPE_COUNT where there is none. */
tc_dtype
find_dtype(at::ScalarType type)
{
    switch (type) {
    case at::kBool:
        return TC_BOOL;
    case at::kByte:
        return TC_UINT8;
    case at::kChar:
        return TC_INT8;
    case at::kUInt16:
        return TC_UINT16;
    case at::kShort:
        return TC_INT16;
    case at::kUInt32:
        return TC_UINT32;
    case at::kInt:
        return TC_INT32;
    case at::kUInt64:
        return TC_UINT64;
    case at::kLong:
        return TC_INT64;
    case at::kHalf:
        return TC_FLOAT16;
    case at::kBFloat16:
        return TC_BFLOAT16;
    case at::kFloat:
        return TC_FLOAT32;
    case at::kDouble:
        return TC_FLOAT64;
    case at::kComplexHalf:
        return TC_COMPLEX32;
    case at::kComplexFloat:
        return TC_COMPLEX64;
    case at::kComplexDouble:
        return TC_COMPLEX128;
    case at::kFloat8_e4m3fn:
        return TC_FLOAT8_E4M3FN;
    case at::kFloat8_e5m2:
        return TC_FLOAT8_E5M2;
    case at::kFloat8_e4m3fnuz:
        return TC_FLOAT8_E4M3FNUZ;
    case at::kFloat8_e5m2fnuz:
        return TC_FLOAT8_E5M2FNUZ;
    case at::kFloat8_e8m0fnu:
        return TC_FLOAT8_E8M0FNU;
    case at::kFloat4_e2m1fn_x2:
        return TC_FLOAT4_E2M1FN_X2;
    default:
        return TC_DTYPE_COUNT;
    }
}

/* Dense memory of the CPU whose bytes are its value: no conjugate or negative bit, no
 * subclass, mode, layout or wrapper that would show in the keys. */
bool
has_plain_keys(const at::Tensor &tensor)
{
    constexpr c10::DispatchKeySet dense(c10::DispatchKey::CPU);
    constexpr c10::DispatchKeySet plain(
        {c10::DispatchKey::CPU, c10::DispatchKey::AutogradCPU,
         c10::DispatchKey::AutocastCPU, c10::DispatchKey::ADInplaceOrView});
    c10::DispatchKeySet keys = tensor.key_set();

    return keys.has_all(dense) && (keys.raw_repr() & ~plain.raw_repr()) == 0 &&
           tensor.has_storage();
}

} // namespace

tc_dtype
to_dtype(const at::Tensor &tensor)
{
    tc_dtype dtype = find_dtype(tensor.scalar_type());

    TORCH_CHECK_VALUE(dtype != TC_DTYPE_COUNT, "tensors of dtype ", tensor.dtype(),
                      " cannot be communicated");
    return dtype;
}

at::ScalarType
to_scalar_type(tc_dtype dtype)
{
    constexpr auto types = static_cast<int>(at::ScalarType::NumOptions);

    for (int i = 0; i < types; i++) {
        auto type = static_cast<at::ScalarType>(i);

        if (find_dtype(type) == dtype) {
            return type;
        }
    }
    return at::ScalarType::Undefined;
}

bool
view_plain(PyObject *obj, tc_py_view *view_p) noexcept
{
    if (!THPVariable_CheckExact(obj)) {
        return false;
    }
    const at::Tensor &tensor = THPVariable_Unpack(obj);
    tc_dtype dtype = find_dtype(tensor.scalar_type());

    if (dtype == TC_DTYPE_COUNT || !has_plain_keys(tensor) || !tensor.is_contiguous()) {
        return false;
    }
    try {
        view_p->data = tensor.mutable_data_ptr();
    } catch (const std::exception &) {
        return false;
    }
    view_p->count = static_cast<uint64_t>(tensor.numel());
    view_p->bytes = tensor.nbytes();
    view_p->rows = tensor.dim() == 0 ? 1 : static_cast<uint64_t>(tensor.size(0));
    view_p->dtype = dtype;
    view_p->whole = true;
    return view_p->data != nullptr || view_p->count == 0;
}

} // namespace torchcomms
