// Tensors as the C interface takes them: elements at an address, plain copies where they do not lie so, and operators.

#pragma once

#include <comms/torchcomms/TorchCommBackend.hpp>

#include <ATen/ATen.h>

#include "../../torch/compiled/native.h"
#include "../../torch/compiled/words.h"

#include <algorithm>

namespace torch::comms {
namespace {

using roundelay::rl;
using std::chrono::milliseconds;
using Finish = std::vector<std::function<void()>>;
using Hints = std::unordered_map<std::string, std::string>;
using Tensors = std::vector<at::Tensor>;

template <typename... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  throw std::runtime_error(roundelay::words("roundelay: ", parts...));
}

// Elements as the native part takes them: complex numbers are two, other types that are only copied are bytes.
struct Span {
  void* ptr;
  uint64_t count;
  rl_dtype dtype;
};

struct Type {
  rl_dtype dtype;
  uint64_t scale;
};

Type type_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kHalf:
      return {RL_F16, 1};
    case at::kBFloat16:
      return {RL_BF16, 1};
    case at::kFloat:
      return {RL_F32, 1};
    case at::kDouble:
      return {RL_F64, 1};
    case at::kChar:
      return {RL_I8, 1};
    case at::kByte:
      return {RL_U8, 1};
    case at::kInt:
      return {RL_I32, 1};
    case at::kUInt32:
      return {RL_U32, 1};
    case at::kLong:
      return {RL_I64, 1};
    case at::kUInt64:
      return {RL_U64, 1};
    case at::kBool:
      return {RL_BOOL, 1};
    case at::kComplexFloat:
      return {RL_F32, 2};
    case at::kComplexDouble:
      return {RL_F64, 2};
    default:
      return {RL_U8, static_cast<uint64_t>(tensor.element_size())};
  }
}

Span span(const at::Tensor& tensor) {
  const Type type = type_of(tensor);
  return {tensor.data_ptr(), static_cast<uint64_t>(tensor.numel()) * type.scale, type.dtype};
}

bool overlap(const at::Tensor& a, const at::Tensor& b) {
  const char* first = static_cast<const char*>(a.data_ptr());
  const char* second = static_cast<const char*>(b.data_ptr());
  return first < second + b.nbytes() && second < first + a.nbytes();
}

// The tensors of one call: what must live until it has ended, and the copies that are due then.
struct Call {
  Tensors keep;
  Finish finish;

  // Has a tensor copied to its target at the end, in the stream of the call if it is in one.
  void finish_by(const at::Tensor& target, const at::Tensor& of) {
    keep.push_back(target);
    finish.push_back([target, of] { target.copy_(of); });
  }

  at::Tensor readable(const at::Tensor& tensor) {
    keep.push_back(tensor.detach().resolve_conj().resolve_neg().contiguous());
    return keep.back();
  }

  at::Tensor writable(const at::Tensor& tensor, bool values = false) {
    at::Tensor plain = tensor.detach();
    if (!plain.is_contiguous() || plain.is_conj() || plain.is_neg()) {
      at::Tensor target = plain;
      plain = values ? target.resolve_conj().resolve_neg().contiguous() : at::empty(target.sizes(), target.options());
      if (plain.is_same(target)) {
        plain = plain.clone();
      }
      finish_by(target, plain);
    }
    keep.push_back(plain);
    return plain;
  }

  // Types without arithmetic are reduced in a wider one.
  static std::optional<at::ScalarType> wider(const at::Tensor& tensor) {
    switch (tensor.scalar_type()) {
      case at::kShort:
      case at::kUInt16:
        return at::kInt;
      default:
        if (type_of(tensor).scale > 2 || (type_of(tensor).dtype == RL_U8 && tensor.scalar_type() != at::kByte)) {
          refuse("Invalid scalar type ", tensor.scalar_type(), " for a reduction: convert to float16 or wider first");
        }
        return std::nullopt;
    }
  }

  at::Tensor reduced_from(const at::Tensor& tensor) {
    const auto type = wider(tensor);
    return readable(type ? tensor.to(*type) : tensor);
  }

  at::Tensor reduced_to(const at::Tensor& tensor, bool values = false) {
    const auto type = wider(tensor);
    if (!type) {
      return writable(tensor, values);
    }
    at::Tensor target = tensor.detach();
    at::Tensor staged = values ? target.to(*type).contiguous()
                               : at::empty(target.sizes(), target.options().dtype(*type));
    finish_by(target, staged);
    keep.push_back(staged);
    return staged;
  }
};

std::vector<rl_buffer> buffers(const Tensors& tensors) {
  std::vector<rl_buffer> list;
  for (const auto& tensor : tensors) {
    const Span at = span(tensor);
    list.push_back({at.ptr, at.count});
  }
  return list;
}

bool equal(const Tensors& tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor& t) {
    return t.numel() == tensors.front().numel();
  });
}

std::vector<uint64_t> counts_of(const Tensors& tensors) {
  std::vector<uint64_t> counts;
  for (const auto& tensor : tensors) {
    counts.push_back(span(tensor).count);
  }
  return counts;
}

at::Tensor flat(const Tensors& tensors) {
  Tensors rows;
  for (const auto& tensor : tensors) {
    rows.push_back(tensor.detach().reshape({-1}));
  }
  return at::cat(rows);
}

// One tensor for several, and the copies that are due at the end.
at::Tensor flat_for(const Tensors& tensors, Call& call) {
  int64_t count = 0;
  for (const auto& tensor : tensors) {
    count += tensor.numel();
  }
  at::Tensor all = at::empty({count}, tensors.front().options());
  call.keep.push_back(all);
  call.keep.insert(call.keep.end(), tensors.begin(), tensors.end());
  call.finish.push_back([all, tensors] {
    int64_t at = 0;
    for (const auto& tensor : tensors) {
      tensor.detach().copy_(all.narrow(0, at, tensor.numel()).view(tensor.sizes()));
      at += tensor.numel();
    }
  });
  return all;
}

struct Operator {
  rl_op op;
  double factor = 1.0;
};

Operator operator_of(const ReduceOp& op, const at::Tensor& tensor) {
  using Kind = ReduceOp::RedOpType;
  const bool logical = tensor.scalar_type() == at::kBool;
  const auto plain = [&]() -> rl_op {
    switch (op.type()) {
      case Kind::SUM:
        return logical ? RL_OR : RL_SUM;
      case Kind::PRODUCT:
        return logical ? RL_AND : RL_PROD;
      case Kind::MIN:
        return logical ? RL_AND : RL_MIN;
      case Kind::MAX:
        return logical ? RL_OR : RL_MAX;
      case Kind::BAND:
        return RL_AND;
      case Kind::BOR:
        return RL_OR;
      case Kind::BXOR:
        return RL_XOR;
      case Kind::AVG:
        return RL_AVG;
      case Kind::PREMUL_SUM:
        return RL_PREMUL_SUM;
    }
    refuse("no reduction has the number ", static_cast<int>(op.type()));
  }();
  if (logical && (plain == RL_AVG || plain == RL_PREMUL_SUM)) {
    refuse("Cannot use ReduceOp.", plain == RL_AVG ? "AVG" : "PREMUL_SUM", " with Bool tensors");
  }
  if (tensor.is_complex() && plain != RL_SUM && plain != RL_AVG && plain != RL_PREMUL_SUM) {
    refuse("the operator has no meaning for ", tensor.scalar_type(), "; there are SUM, AVG and PREMUL_SUM");
  }
  if (plain != RL_PREMUL_SUM) {
    return {plain};
  }
  const auto& factor = *op.factor();
  if (const auto* number = std::get_if<double>(&factor)) {
    return {plain, *number};
  }
  const auto& held = std::get<at::Tensor>(factor);
  if (held.numel() != 1) {
    refuse("the factor of PREMUL_SUM has ", held.numel(), " elements: give a number, or a tensor of one element");
  }
  return {plain, held.item<double>()};
}

} // namespace
} // namespace torch::comms
