// Tensors as memory of the C interface: addresses, lengths and types.
//
// The library takes contiguous elements of the types that it knows. What is otherwise is staged: copied before the
// operation, and copied back when it has ended. Elements keep their logical order.

#pragma once

#include "native.h"
#include "words.h"

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <vector>

namespace roundelay {

using at::Tensor;
using Tensors = std::vector<Tensor>;

// Memory of a tensor as the library takes it.
struct Address {
  void* ptr;
  uint64_t count;
  rl_dtype dtype;
};

// A copy that is due when an operation has ended.
struct Copy {
  Tensor to;
  Tensor of;
};
using Copies = std::vector<Copy>;

inline void make(const Copies& copies) {
  at::NoGradGuard no_grad;
  for (const Copy& copy : copies) {
    copy.to.copy_(copy.of);
  }
}

// Returns the type of elements, and how many of them one element of the tensor is; types that are only copied are
// bytes.
inline std::pair<rl_dtype, uint64_t> elements(at::ScalarType type) {
  switch (type) {
    case at::kFloat: return {RL_F32, 1};
    case at::kDouble: return {RL_F64, 1};
    case at::kHalf: return {RL_F16, 1};
    case at::kBFloat16: return {RL_BF16, 1};
    case at::kLong: return {RL_I64, 1};
    case at::kInt: return {RL_I32, 1};
    case at::kChar: return {RL_I8, 1};
    case at::kByte: return {RL_U8, 1};
    case at::kBool: return {RL_BOOL, 1};
    case at::ScalarType::UInt32: return {RL_U32, 1};
    case at::ScalarType::UInt64: return {RL_U64, 1};
    case at::kComplexFloat: return {RL_F32, 2};
    case at::kComplexDouble: return {RL_F64, 2};
    default: return {RL_U8, c10::elementSize(type)};
  }
}

inline uint64_t units(const Tensor& tensor) {
  return elements(tensor.scalar_type()).second;
}

inline Address address(const Tensor& tensor) {
  auto [dtype, unit] = elements(tensor.scalar_type());
  return {tensor.data_ptr(), static_cast<uint64_t>(tensor.numel()) * unit, dtype};
}

inline rl_buffer buffer(const Tensor& tensor) {
  Address memory = address(tensor);
  return {memory.ptr, memory.count};
}

inline std::vector<rl_buffer> buffers(const Tensors& tensors) {
  std::vector<rl_buffer> all;
  for (const Tensor& tensor : tensors) {
    all.push_back(buffer(tensor));
  }
  return all;
}

inline std::vector<uint64_t> counts(const Tensors& tensors) {
  std::vector<uint64_t> all;
  for (const Tensor& tensor : tensors) {
    all.push_back(buffer(tensor).count);
  }
  return all;
}

inline bool all_equal(const Tensors& tensors) {
  for (const Tensor& tensor : tensors) {
    if (tensor.numel() != tensors[0].numel()) {
      return false;
    }
  }
  return true;
}

// True if the memory of a tensor is its elements, one after the other.
inline bool is_plain(const Tensor& tensor) {
  ROUNDELAY_CHECK(
      ValueError, tensor.layout() == at::kStrided, "roundelay: a tensor of layout torch.", tensor.layout(),
      " has no plain memory: make it dense first");
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

// Returns the tensor, or a plain copy of it.
inline Tensor readable(const Tensor& tensor) {
  if (is_plain(tensor)) {
    return tensor;
  }
  at::NoGradGuard no_grad;
  return tensor.resolve_conj().resolve_neg().contiguous();
}

// Returns the tensor, or plain memory that is copied to it at the end; with `keep` it has the values.
inline Tensor writable(const Tensor& tensor, Copies& copies, bool keep = false) {
  if (is_plain(tensor)) {
    return tensor;
  }
  at::NoGradGuard no_grad;
  Tensor staged = keep ? readable(tensor) : at::empty(tensor.sizes(), tensor.options());
  copies.push_back({tensor, staged});
  return staged;
}

// An operator of a reduction.
struct Operator {
  rl_op op = RL_SUM;
  double factor = 1.0;
};

inline const char* operator_name(rl_op op) {
  static const char* names[] = {"sum", "prod", "min", "max", "avg", "premul_sum", "and", "or", "xor"};
  return names[op];
}

// Returns an operator for a type. Raises `ValueError` where it has no meaning for the type.
inline Operator operator_of(const c10d::ReduceOp& given, at::ScalarType type) {
  using Op = c10d::ReduceOp;
  Operator found;
  switch (given.op_) {
    case Op::SUM: found.op = RL_SUM; break;
    case Op::AVG: found.op = RL_AVG; break;
    case Op::PRODUCT: found.op = RL_PROD; break;
    case Op::MIN: found.op = RL_MIN; break;
    case Op::MAX: found.op = RL_MAX; break;
    case Op::BAND: found.op = RL_AND; break;
    case Op::BOR: found.op = RL_OR; break;
    case Op::BXOR: found.op = RL_XOR; break;
    case Op::PREMUL_SUM: found.op = RL_PREMUL_SUM; break;
    default: ROUNDELAY_CHECK(ValueError, false, "roundelay: no reduction has the number ", static_cast<int>(given.op_));
  }
  if (type == at::kBool) {
    // A sum is true where any operand is.
    switch (found.op) {
      case RL_SUM: case RL_MAX: case RL_OR: return {RL_OR, 1.0};
      case RL_PROD: case RL_MIN: case RL_AND: return {RL_AND, 1.0};
      case RL_XOR: return found;
      default:
        ROUNDELAY_CHECK(
            ValueError, false, "roundelay: Cannot use ReduceOp.", found.op == RL_AVG ? "AVG" : "PREMUL_SUM", " with Bool tensors");
    }
  }
  bool linear = found.op == RL_SUM || found.op == RL_AVG || found.op == RL_PREMUL_SUM;
  ROUNDELAY_CHECK(
      ValueError, linear || !c10::isComplexType(type), "roundelay: ReduceOp ", operator_name(found.op), " has no meaning for ",
      type, "; there are sum, avg and premul_sum");
  if (found.op == RL_PREMUL_SUM) {
    const auto* supplement = static_cast<const c10d::NCCLPreMulSumSupplement*>(given.supplement_.get());
    found.factor = supplement->tensor_factor.defined() ? supplement->tensor_factor.item<double>()
                                                       : supplement->double_factor;
  }
  return found;
}

// Returns the type in which a type is reduced. Raises `TypeError` for types that cannot be reduced.
inline at::ScalarType reduced(at::ScalarType type) {
  if (elements(type).first != RL_U8 || type == at::kByte) {
    return type;
  }
  ROUNDELAY_CHECK(
      TypeError, type == at::kShort || type == at::ScalarType::UInt16, "roundelay: Invalid scalar type ", type,
      " for a reduction: convert to float16 or wider first");
  return at::kInt;
}

// Returns memory that is reduced in place of a tensor.
inline Tensor reduced_in_place(const Tensor& tensor, Copies& copies) {
  at::ScalarType type = reduced(tensor.scalar_type());
  if (type == tensor.scalar_type()) {
    return writable(tensor, copies, true);
  }
  at::NoGradGuard no_grad;
  Tensor staged = tensor.to(type).contiguous();
  copies.push_back({tensor, staged});
  return staged;
}

// Returns memory that is read by a reduction.
inline Tensor reduced_from(const Tensor& tensor) {
  at::ScalarType type = reduced(tensor.scalar_type());
  if (type == tensor.scalar_type()) {
    return readable(tensor);
  }
  at::NoGradGuard no_grad;
  return tensor.to(type).contiguous();
}

// Returns memory that a reduction writes.
inline Tensor reduced_to(const Tensor& tensor, Copies& copies) {
  at::ScalarType type = reduced(tensor.scalar_type());
  if (type == tensor.scalar_type()) {
    return writable(tensor, copies);
  }
  Tensor staged = at::empty(tensor.sizes(), tensor.options().dtype(type));
  copies.push_back({tensor, staged});
  return staged;
}

// True if two plain tensors share memory.
inline bool overlap(const Tensor& a, const Tensor& b) {
  const char* begin = static_cast<const char*>(a.data_ptr());
  const char* other = static_cast<const char*>(b.data_ptr());
  return begin < other + b.nbytes() && other < begin + a.nbytes();
}

inline void same_type(const Tensor& first, const Tensors& others, const char* what) {
  for (const Tensor& tensor : others) {
    ROUNDELAY_CHECK(
        ValueError, tensor.scalar_type() == first.scalar_type() && tensor.device().type() == first.device().type(), what,
        ": all tensors need the same type and device, but there are ", first.scalar_type(), " on ", first.device(),
        " and ", tensor.scalar_type(), " on ", tensor.device());
  }
}

// Returns memory for several tensors one after the other, which is copied to them at the end.
inline Tensor flat_for(const Tensors& parts, at::ScalarType type, Copies& copies) {
  int64_t total = 0;
  for (const Tensor& part : parts) {
    total += part.numel();
  }
  Tensor flat = at::empty({total}, parts[0].options().dtype(type));
  int64_t at = 0;
  for (const Tensor& part : parts) {
    copies.push_back({part, flat.narrow(0, at, part.numel()).view(part.sizes())});
    at += part.numel();
  }
  return flat;
}

// Returns the elements of several plain tensors, one after the other.
inline Tensor flat_of(const Tensors& parts) {
  at::NoGradGuard no_grad;
  Tensors rows;
  for (const Tensor& part : parts) {
    rows.push_back(part.reshape({-1}));
  }
  return at::cat(rows);
}

} // namespace roundelay
