// The collective operations in terms of the library, for both backends in C++: checks, staging, and the calls.

#pragma once

#include "tensors.h"

#include <functional>
#include <memory>

namespace roundelay {

// One call of the library on a communicator.
using Call = std::function<int32_t(const rl_comm*, const rl_options*, rl_work**)>;

// The calls that one operation is, and their memory.
struct OperationCalls {
  std::vector<Call> calls;
  CallMemory memory;
  double factor = 1.0;
};

inline const Tensor& one(const Tensors& tensors, const char* what) {
  ROUNDELAY_CHECK(
      ValueError, tensors.size() == 1, "roundelay: ", what, " takes one tensor a rank, not ", tensors.size());
  return tensors[0];
}

inline const Tensors& one(const std::vector<Tensors>& lists, const char* what) {
  ROUNDELAY_CHECK(ValueError, lists.size() == 1, "roundelay: ", what, " takes one list a rank, not ", lists.size());
  return lists[0];
}

inline Tensors joined(const std::vector<Tensors>& lists) {
  Tensors all;
  for (const Tensors& list : lists) {
    all.insert(all.end(), list.begin(), list.end());
  }
  return all;
}

inline void add_all_reduce(OperationCalls& operation, const Tensor& tensor, const Operator& by) {
  Tensor data = operation.memory.reduced_to(tensor, true);
  Address at = address(data);
  operation.factor = by.factor;
  operation.calls.push_back([=](const rl_comm* comm, const rl_options* options, rl_work** work) {
    return rl().rl_all_reduce(comm, at.ptr, at.count, at.dtype, by.op, options, work);
  });
}

inline void add_broadcast(OperationCalls& operation, const Tensor& tensor, int rank, int64_t root) {
  // Of one shape on all ranks, so that all refuse what one cannot write.
  is_plain_output(tensor);
  Address at = address(rank == root ? operation.memory.readable(tensor) : operation.memory.writable(tensor));
  operation.calls.push_back([=](const rl_comm* comm, const rl_options* options, rl_work** work) {
    return rl().rl_broadcast(comm, at.ptr, at.count, at.dtype, root, options, work);
  });
}

inline void add_reduce(
    OperationCalls& operation, const Tensor& tensor, int rank, int64_t root, const Operator& by) {
  Tensor data = operation.memory.reduced_from(tensor);
  Address from = address(data);
  void* to = nullptr;
  if (rank == root) {
    is_plain_output(tensor);
    to = operation.memory.staged(tensor, at::empty(data.sizes(), data.options())).data_ptr();
  }
  operation.factor = by.factor;
  operation.calls.push_back([=](const rl_comm* comm, const rl_options* options, rl_work** work) {
    return rl().rl_reduce(comm, to, from.ptr, from.count, from.dtype, by.op, root, options, work);
  });
}

// Adds a call that has one list of equal tensors, or their lengths and one memory for all.
template <class Lists, class Flat>
void add_lists(OperationCalls& operation, const Tensors& parts, Lists lists, Flat flat, const Tensor& memory) {
  if (memory.defined()) {
    auto lengths = std::make_shared<std::vector<uint64_t>>(counts(parts));
    void* ptr = memory.data_ptr();
    operation.calls.push_back([=](const rl_comm* comm, const rl_options* options, rl_work** work) {
      return flat(comm, ptr, lengths->data(), options, work);
    });
    return;
  }
  auto list = std::make_shared<std::vector<rl_buffer>>(buffers(parts));
  operation.calls.push_back([=](const rl_comm* comm, const rl_options* options, rl_work** work) {
    return lists(comm, list->data(), options, work);
  });
}

inline void add_all_gather(OperationCalls& operation, const Tensors& listed, const Tensor& tensor, int rank, int size) {
  ROUNDELAY_CHECK(
      ValueError, listed.size() == static_cast<size_t>(size), "all_gather: Invalid output tensor list: ", listed.size(),
      " tensors for ", size, " ranks; give one a rank");
  Address from = address(operation.memory.readable(tensor));
  Tensors targets = listed;
  Tensor flat;
  if (all_equal(listed)) {
    for (Tensor& target : targets) {
      target = operation.memory.writable(target);
    }
  } else {
    flat = operation.memory.flat_for(listed, tensor.scalar_type());
  }
  same_type(tensor, listed, "all_gather");
  ROUNDELAY_CHECK(
      ValueError, listed[rank].numel() == tensor.numel(), "all_gather: output ", rank, " has ", listed[rank].numel(),
      " elements, but this rank's input has ", tensor.numel());
  add_lists(
      operation, targets,
      [=](const rl_comm* comm, const rl_buffer* list, const rl_options* options, rl_work** work) {
        return rl().rl_all_gather_list(comm, list, from.ptr, from.count, from.dtype, options, work);
      },
      [=](const rl_comm* comm, void* to, const uint64_t* lengths, const rl_options* options, rl_work** work) {
        return rl().rl_all_gather_v(comm, to, from.ptr, lengths, from.dtype, options, work);
      },
      flat);
}

inline void add_all_gather_single(OperationCalls& operation, const Tensor& output, const Tensor& input, int size) {
  Tensor data = operation.memory.readable(input);
  Tensor target = operation.memory.writable(output);
  same_type(output, {input}, "all_gather_single");
  ROUNDELAY_CHECK(
      ValueError, output.numel() == input.numel() * size, "all_gather_single: the output has ", output.numel(),
      " elements; output tensor size must be equal to world_size times input tensor size, ", size, " times ",
      input.numel());
  Address from = address(operation.memory.beside(data, target));
  void* to = target.data_ptr();
  operation.calls.push_back([=](const rl_comm* comm, const rl_options* options, rl_work** work) {
    return rl().rl_all_gather(comm, to, from.ptr, from.count, from.dtype, options, work);
  });
}

inline void add_reduce_scatter(
    OperationCalls& operation, const Tensor& output, const Tensors& listed, const Operator& by, int rank,
    int size) {
  ROUNDELAY_CHECK(
      ValueError, listed.size() == static_cast<size_t>(size), "reduce_scatter: ", listed.size(), " input tensors for ", size,
      " ranks; give one a rank");
  Address to = address(operation.memory.reduced_to(output));
  operation.factor = by.factor;
  Tensors sources;
  for (const Tensor& each : listed) {
    sources.push_back(operation.memory.reduced_from(each));
  }
  same_type(output, listed, "reduce_scatter");
  ROUNDELAY_CHECK(
      ValueError, listed[rank].numel() == output.numel(), "reduce_scatter: the output has ", output.numel(),
      " elements, but input ", rank, " has ", listed[rank].numel());
  Tensor flat = all_equal(listed) ? Tensor() : operation.memory.flat_of(sources);
  add_lists(
      operation, sources,
      [=](const rl_comm* comm, const rl_buffer* list, const rl_options* options, rl_work** work) {
        return rl().rl_reduce_scatter_list(comm, to.ptr, list, to.count, to.dtype, by.op, options, work);
      },
      [=](const rl_comm* comm, void* from, const uint64_t* lengths, const rl_options* options, rl_work** work) {
        return rl().rl_reduce_scatter_v(comm, to.ptr, from, lengths, to.dtype, by.op, options, work);
      },
      flat);
}

inline void add_reduce_scatter_single(
    OperationCalls& operation, const Tensor& output, const Tensor& input, const Operator& by, int size) {
  Tensor data = operation.memory.reduced_from(input);
  Tensor target = operation.memory.reduced_to(output);
  same_type(output, {input}, "reduce_scatter_single");
  ROUNDELAY_CHECK(
      ValueError, input.numel() == output.numel() * size, "reduce_scatter_single: the input has ", input.numel(),
      " elements; input tensor must be the same size as output size times world size, ", output.numel(), " times ",
      size);
  operation.factor = by.factor;
  Address to = address(target);
  void* from = operation.memory.beside(data, target).data_ptr();
  operation.calls.push_back([=](const rl_comm* comm, const rl_options* options, rl_work** work) {
    return rl().rl_reduce_scatter(comm, to.ptr, from, to.count, to.dtype, by.op, options, work);
  });
}

using Lengths = std::vector<uint64_t>;

// Returns the elements of each rank's part of a tensor that is cut into rows.
inline Lengths rows(const Tensor& tensor, std::vector<int64_t> sizes, int size, const char* side) {
  int64_t count = tensor.dim() > 0 ? tensor.size(0) : 0;
  if (sizes.empty()) {
    ROUNDELAY_CHECK(
        ValueError, count % size == 0, "all_to_all_single: tensor's dim 0 (", count,
        ") does not divide equally across group size ", size);
    sizes.assign(size, count / size);
  }
  ROUNDELAY_CHECK(
      ValueError, sizes.size() == static_cast<size_t>(size), "all_to_all_single: number of ", side, " splits (", sizes.size(),
      ") not equal to group size ", size);
  int64_t total = 0;
  for (int64_t each : sizes) {
    total += each;
  }
  ROUNDELAY_CHECK(
      ValueError, total == count, "all_to_all_single: split sizes [", listed(sizes), "] don't match total dim 0 size ",
      count, " of the ", side);
  uint64_t row = count > 0 ? tensor.numel() / count * units(tensor) : 0;
  Lengths lengths;
  for (int64_t each : sizes) {
    lengths.push_back(each * row);
  }
  return lengths;
}

inline void add_all_to_all_v(
    OperationCalls& operation, const Tensor& target, Lengths received, const Tensor& data, Lengths sent) {
  auto to = std::make_shared<Lengths>(std::move(received));
  auto from = std::make_shared<Lengths>(std::move(sent));
  Address output = address(target);
  void* input = data.data_ptr();
  operation.calls.push_back([=](const rl_comm* comm, const rl_options* options, rl_work** work) {
    return rl().rl_all_to_all_v(comm, output.ptr, to->data(), input, from->data(), output.dtype, options, work);
  });
}

inline void add_all_to_all_single(
    OperationCalls& operation, const Tensor& output, const Tensor& input, const std::vector<int64_t>& received,
    const std::vector<int64_t>& sent, int size) {
  Tensor data = operation.memory.readable(input);
  Tensor target = operation.memory.writable(output);
  same_type(output, {input}, "all_to_all_single");
  data = operation.memory.beside(data, target);
  bool equal = received.empty() && sent.empty() && target.numel() == data.numel() && data.numel() % size == 0;
  if (!equal) {
    Lengths to = rows(target, received, size, "output");
    add_all_to_all_v(operation, target, std::move(to), data, rows(data, sent, size, "input"));
    return;
  }
  Address from = address(data);
  void* to = target.data_ptr();
  operation.calls.push_back([=](const rl_comm* comm, const rl_options* options, rl_work** work) {
    return rl().rl_all_to_all(comm, to, from.ptr, from.count / size, from.dtype, options, work);
  });
}

inline void add_all_to_all(OperationCalls& operation, const Tensors& outputs, const Tensors& inputs, int size) {
  ROUNDELAY_CHECK(
      ValueError, outputs.size() == static_cast<size_t>(size) && inputs.size() == outputs.size(), "all_to_all: ", outputs.size(),
      " outputs and ", inputs.size(), " inputs for ", size, " ranks");
  Tensors plain;
  for (const Tensor& input : inputs) {
    plain.push_back(operation.memory.readable(input));
  }
  // Lists that are equal here may differ on another rank, so that all call the same.
  Tensor target = operation.memory.flat_for(outputs, inputs[0].scalar_type());
  same_type(inputs[0], inputs, "all_to_all");
  same_type(inputs[0], outputs, "all_to_all");
  add_all_to_all_v(operation, target, counts(outputs), operation.memory.flat_of(plain), counts(inputs));
}

inline void add_gather(
    OperationCalls& operation, const std::vector<Tensors>& outputs, const Tensor& tensor, int rank, int64_t root, int size) {
  Address from = address(operation.memory.readable(tensor));
  auto list = std::make_shared<std::vector<rl_buffer>>();
  if (rank == root) {
    const Tensors& listed = one(outputs, "gather");
    ROUNDELAY_CHECK(
        ValueError, listed.size() == static_cast<size_t>(size), "gather: ", listed.size(), " output tensors for ", size,
        " ranks; give one a rank");
    for (const Tensor& each : listed) {
      list->push_back(buffer(operation.memory.writable(each)));
    }
    same_type(tensor, listed, "gather");
  } else {
    ROUNDELAY_CHECK(
        ValueError, outputs.empty() || outputs[0].empty(), "gather: requires empty output on non-root: only the root has outputs");
  }
  operation.calls.push_back([=](const rl_comm* comm, const rl_options* options, rl_work** work) {
    const rl_buffer* to = list->empty() ? nullptr : list->data();
    return rl().rl_gather_list(comm, to, from.ptr, from.count, from.dtype, root, options, work);
  });
}

inline void add_scatter(
    OperationCalls& operation, const Tensor& output, const std::vector<Tensors>& inputs, int rank, int64_t root, int size) {
  Address to = address(operation.memory.writable(output));
  auto list = std::make_shared<std::vector<rl_buffer>>();
  if (rank == root) {
    const Tensors& listed = one(inputs, "scatter");
    ROUNDELAY_CHECK(
        ValueError, listed.size() == static_cast<size_t>(size), "scatter: ", listed.size(), " input tensors for ", size,
        " ranks; give one a rank");
    for (const Tensor& each : listed) {
      list->push_back(buffer(operation.memory.readable(each)));
    }
    same_type(output, listed, "scatter");
  } else {
    ROUNDELAY_CHECK(
        ValueError, inputs.empty() || inputs[0].empty(), "scatter: requires empty input on non-root: only the root has inputs");
  }
  operation.calls.push_back([=](const rl_comm* comm, const rl_options* options, rl_work** work) {
    const rl_buffer* from = list->empty() ? nullptr : list->data();
    return rl().rl_scatter_list(comm, to.ptr, from, to.count, to.dtype, root, options, work);
  });
}

inline void add_barrier(OperationCalls& operation) {
  operation.calls.push_back([](const rl_comm* comm, const rl_options* options, rl_work** work) {
    return rl().rl_barrier(comm, options, work);
  });
}

// Sums COO tensors of all ranks, in place; the ranks' numbers of elements may differ. `execute` executes the calls of a
// part of it, and waits.
template <class Execute>
void sum_sparse(const Tensor& tensor, const Operator& by, int rank, int size, Execute execute) {
  ROUNDELAY_CHECK(ValueError, by.op == RL_SUM, "roundelay: sparse tensors can only be summed; use ReduceOp.SUM");
  at::NoGradGuard no_grad;
  Tensor own = tensor.detach().coalesce();
  // A row an element, so that the ranks' parts stand one after the other.
  Tensor indices = own.indices().t().contiguous();
  Tensor values = own.values().contiguous();
  Tensor lengths = at::empty({size}, indices.options());
  OperationCalls first;
  add_all_gather_single(first, lengths, at::full({1}, indices.size(0), indices.options()), size);
  execute(std::move(first));
  auto collected = [&](const Tensor& part) {
    Tensors parts;
    for (int each = 0; each < size; ++each) {
      std::vector<int64_t> shape = part.sizes().vec();
      shape[0] = lengths[each].template item<int64_t>();
      parts.push_back(at::empty(shape, part.options()));
    }
    OperationCalls next;
    add_all_gather(next, parts, part, rank, size);
    execute(std::move(next));
    return at::cat(parts);
  };
  Tensor all_indices = collected(indices).t();
  Tensor all_values = collected(values);
  const_cast<Tensor&>(tensor).copy_(
      at::sparse_coo_tensor(all_indices, all_values, tensor.sizes(), all_values.options().layout(at::kSparse))
          .coalesce());
}

} // namespace roundelay
