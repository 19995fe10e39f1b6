// Tensors as memory of the C interface, for both backends in C++: addresses, lengths, types, and operators.
//
// The library takes contiguous elements of the types that it knows. What is otherwise is staged: copied before the
// operation, and copied back when it has ended. Elements keep their logical order.

#pragma once

#include "native.h"
#include "words.h"

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/grad_mode.h>

#include <utility>
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
    case at::kComplexHalf: return {RL_F16, 2};
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
    all.push_back(static_cast<uint64_t>(tensor.numel()) * units(tensor));
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

// True if the memory of a tensor is its elements, one after the other. Raises `ValueError` if it has none.
inline bool is_plain(const Tensor& tensor) {
  ROUNDELAY_CHECK(
      ValueError, tensor.layout() == at::kStrided, "roundelay: a tensor of layout torch.", tensor.layout(),
      " has no plain memory: pass .to_dense()");
  ROUNDELAY_CHECK(
      ValueError, tensor.is_cpu() || tensor.is_cuda(), "roundelay: a tensor is on ", tensor.device(),
      ": move it to the CPU or a CUDA GPU");
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

// True if the memory of an output is its elements. Raises `ValueError` if it has none for each of them.
inline bool is_plain_output(const Tensor& tensor) {
  if (is_plain(tensor)) {
    return true;
  }
  ROUNDELAY_CHECK(
      ValueError, at::has_internal_overlap(tensor) != at::MemOverlap::Yes,
      "roundelay: several elements of an output lie at one address, as after expand: pass a copy of it, as .clone()");
  return false;
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

// The memory of a call: the tensors that live until it has ended, and the copies that are due then.
class CallMemory {
 public:
  Tensor keep(Tensor tensor) {
    kept_.push_back(std::move(tensor));
    return kept_.back();
  }

  // Returns the tensor, or a plain copy of it.
  Tensor readable(const Tensor& tensor) {
    return keep(plain(tensor));
  }

  // Returns the tensor, or plain memory that is copied to it at the end; it has the values if the call reads them.
  Tensor writable(const Tensor& tensor, bool is_read = false) {
    if (is_plain_output(tensor)) {
      return keep(tensor);
    }
    at::NoGradGuard no_grad;
    return staged(tensor, is_read ? plain(tensor) : at::empty(tensor.sizes(), tensor.options()));
  }

  // Returns memory that is read by a reduction.
  Tensor reduced_from(const Tensor& tensor) {
    at::ScalarType type = reduced(tensor.scalar_type());
    Tensor data = plain(tensor);
    return keep(type == tensor.scalar_type() ? data : data.detach().to(type));
  }

  // Returns memory that a reduction writes, and reads if it is in place.
  Tensor reduced_to(const Tensor& tensor, bool is_read = false) {
    at::ScalarType type = reduced(tensor.scalar_type());
    if (type == tensor.scalar_type()) {
      return writable(tensor, is_read);
    }
    is_plain_output(tensor);
    at::NoGradGuard no_grad;
    return staged(
        tensor, is_read ? plain(tensor).to(type) : at::empty(tensor.sizes(), tensor.options().dtype(type)));
  }

  // Returns a plain input that lies beside the output: itself, or a copy.
  Tensor beside(const Tensor& input, const Tensor& output) {
    return overlap(input, output) ? keep(input.detach().clone()) : input;
  }

  // Returns memory for several outputs one after the other, which is copied to them at the end.
  Tensor flat_for(const Tensors& parts, at::ScalarType type) {
    int64_t total = 0;
    for (const Tensor& part : parts) {
      is_plain_output(part);
      total += part.numel();
    }
    Tensor flat = at::empty({total}, parts[0].options().dtype(type));
    int64_t at = 0;
    for (const Tensor& part : parts) {
      staged(part, flat.narrow(0, at, part.numel()).view(part.sizes()));
      at += part.numel();
    }
    return flat;
  }

  // Returns the elements of several plain tensors, one after the other.
  Tensor flat_of(const Tensors& parts) {
    Tensors rows;
    for (const Tensor& part : parts) {
      rows.push_back(part.detach().reshape({-1}));
    }
    return keep(at::cat(rows));
  }

  // Has a result copied to an output at the end.
  Tensor staged(const Tensor& output, Tensor result) {
    copies_.emplace_back(output, result);
    keep(result);
    keep(output);
    return result;
  }

  // Takes what another call has.
  void append(CallMemory other) {
    kept_.insert(kept_.end(), other.kept_.begin(), other.kept_.end());
    copies_.insert(copies_.end(), other.copies_.begin(), other.copies_.end());
  }

  // Makes the copies that are due, in the current stream.
  void finish() const {
    at::NoGradGuard no_grad;
    for (const auto& [output, result] : copies_) {
      // Detached, a tensor of inference mode can be written outside of it.
      output.detach().copy_(result);
    }
  }

  // Leaves the outputs as they are: not all calls were started.
  void drop_copies() {
    copies_.clear();
  }

  const Tensors& kept() const {
    return kept_;
  }
  bool has_copies() const {
    return !copies_.empty();
  }

 private:
  static Tensor plain(const Tensor& tensor) {
    if (is_plain(tensor)) {
      return tensor;
    }
    at::NoGradGuard no_grad;
    return tensor.resolve_conj().resolve_neg().contiguous();
  }

  Tensors kept_;
  std::vector<std::pair<Tensor, Tensor>> copies_;
};

// An operator of a reduction.
struct Operator {
  rl_op op = RL_SUM;
  double factor = 1.0;
};

inline const char* operator_name(rl_op op) {
  static const char* names[] = {"sum", "prod", "min", "max", "avg", "premul_sum", "and", "or", "xor"};
  return names[op];
}

// Returns the operator of an enumeration of torch's or torchcomms' for a type; its factor is the caller's to set. Raises
// `ValueError` where it has no meaning for the type.
template <class Op>
rl_op operator_for(int number, at::ScalarType type) {
  rl_op op = RL_SUM;
  switch (number) {
    case static_cast<int>(Op::SUM): op = RL_SUM; break;
    case static_cast<int>(Op::AVG): op = RL_AVG; break;
    case static_cast<int>(Op::PRODUCT): op = RL_PROD; break;
    case static_cast<int>(Op::MIN): op = RL_MIN; break;
    case static_cast<int>(Op::MAX): op = RL_MAX; break;
    case static_cast<int>(Op::BAND): op = RL_AND; break;
    case static_cast<int>(Op::BOR): op = RL_OR; break;
    case static_cast<int>(Op::BXOR): op = RL_XOR; break;
    case static_cast<int>(Op::PREMUL_SUM): op = RL_PREMUL_SUM; break;
    default: ROUNDELAY_CHECK(ValueError, false, "roundelay: no reduction has the number ", number);
  }
  if (type == at::kBool) {
    // A sum is true where any operand is.
    switch (op) {
      case RL_SUM: case RL_MAX: case RL_OR: return RL_OR;
      case RL_PROD: case RL_MIN: case RL_AND: return RL_AND;
      case RL_XOR: return op;
      default:
        ROUNDELAY_CHECK(
            ValueError, false, "roundelay: Cannot use ReduceOp.", op == RL_AVG ? "AVG" : "PREMUL_SUM", " with Bool tensors");
    }
  }
  bool linear = op == RL_SUM || op == RL_AVG || op == RL_PREMUL_SUM;
  ROUNDELAY_CHECK(
      ValueError, linear || !c10::isComplexType(type), "roundelay: ReduceOp ", operator_name(op), " has no meaning for ",
      type, "; there are sum, avg and premul_sum");
  return op;
}

} // namespace roundelay
