// The collective operations of c10d in terms of the library: checks, staging, and the calls.

#pragma once

#include "calls.h"

namespace roundelay {

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

inline void set_device(Operation& operation, const Tensors& tensors) {
  if (!tensors.empty()) {
    operation.device = tensors[0].device();
  }
}

inline void add_all_reduce(Operation& operation, const Tensor& tensor, const c10d::ReduceOp& given) {
  Operator by = operator_of(given, tensor.scalar_type());
  Tensor data = reduced_in_place(tensor, operation.copies);
  Address at = address(data);
  operation.factor = by.factor;
  operation.keep(data);
  operation.calls.push_back([=](const rl_comm* comm, const rl_options* options, rl_work** work) {
    return rl().rl_all_reduce(comm, at.ptr, at.count, at.dtype, by.op, options, work);
  });
}

inline void add_broadcast(Operation& operation, const Tensor& tensor, int rank, int64_t root) {
  Tensor data = rank == root ? readable(tensor) : writable(tensor, operation.copies);
  Address at = address(data);
  operation.keep(data);
  operation.calls.push_back([=](const rl_comm* comm, const rl_options* options, rl_work** work) {
    return rl().rl_broadcast(comm, at.ptr, at.count, at.dtype, root, options, work);
  });
}

inline void add_reduce(
    Operation& operation, const Tensor& tensor, int rank, int64_t root, const c10d::ReduceOp& given) {
  Operator by = operator_of(given, tensor.scalar_type());
  Tensor data = reduced_from(tensor);
  Address from = address(data);
  void* to = nullptr;
  operation.keep(data);
  if (rank == root) {
    Tensor result = at::empty_like(data);
    operation.copies.push_back({tensor, result});
    operation.keep(result);
    to = result.data_ptr();
  }
  operation.factor = by.factor;
  operation.calls.push_back([=](const rl_comm* comm, const rl_options* options, rl_work** work) {
    return rl().rl_reduce(comm, to, from.ptr, from.count, from.dtype, by.op, root, options, work);
  });
}

// Adds a call that has one list of equal tensors, or their lengths and one memory for all.
template <class Lists, class Flat>
void add_lists(Operation& operation, const Tensors& parts, Lists lists, Flat flat, const Tensor& memory) {
  if (memory.defined()) {
    auto lengths = std::make_shared<std::vector<uint64_t>>(counts(parts));
    void* ptr = memory.data_ptr();
    operation.keep(memory);
    operation.calls.push_back([=](const rl_comm* comm, const rl_options* options, rl_work** work) {
      return flat(comm, ptr, lengths->data(), options, work);
    });
    return;
  }
  auto list = std::make_shared<std::vector<rl_buffer>>(buffers(parts));
  operation.memory.insert(operation.memory.end(), parts.begin(), parts.end());
  operation.calls.push_back([=](const rl_comm* comm, const rl_options* options, rl_work** work) {
    return lists(comm, list->data(), options, work);
  });
}

inline void add_all_gather(Operation& operation, const Tensors& listed, const Tensor& tensor, int rank, int size) {
  ROUNDELAY_CHECK(
      ValueError, listed.size() == static_cast<size_t>(size), "all_gather: Invalid output tensor list: ", listed.size(),
      " tensors for ", size, " ranks; give one a rank");
  same_type(tensor, listed, "all_gather");
  ROUNDELAY_CHECK(
      ValueError, listed[rank].numel() == tensor.numel(), "all_gather: output ", rank, " has ", listed[rank].numel(),
      " elements, but this rank's input has ", tensor.numel());
  Tensor data = readable(tensor);
  operation.keep(data);
  Tensors targets = listed;
  Tensor flat;
  if (all_equal(listed)) {
    for (Tensor& target : targets) {
      target = writable(target, operation.copies);
    }
  } else {
    flat = flat_for(listed, data.scalar_type(), operation.copies);
  }
  Address from = address(data);
  add_lists(
      operation, targets,
      [=](const rl_comm* comm, const rl_buffer* list, const rl_options* options, rl_work** work) {
        return rl().rl_all_gather(comm, list, from.ptr, from.count, from.dtype, options, work);
      },
      [=](const rl_comm* comm, void* to, const uint64_t* lengths, const rl_options* options, rl_work** work) {
        return rl().rl_all_gather_v(comm, to, from.ptr, lengths, from.dtype, options, work);
      },
      flat);
}

inline void add_all_gather_single(Operation& operation, const Tensor& output, const Tensor& input, int size) {
  same_type(output, {input}, "all_gather_single");
  ROUNDELAY_CHECK(
      ValueError, output.numel() == input.numel() * size, "all_gather_single: the output has ", output.numel(),
      " elements; output tensor size must be equal to world_size times input tensor size, ", size, " times ",
      input.numel());
  Tensor data = readable(input);
  Tensor target = writable(output, operation.copies);
  if (overlap(data, target)) {
    data = data.clone();
  }
  operation.keep(data);
  operation.keep(target);
  Address from = address(data);
  void* to = target.data_ptr();
  operation.calls.push_back([=](const rl_comm* comm, const rl_options* options, rl_work** work) {
    return rl().rl_all_gather_single(comm, to, from.ptr, from.count, from.dtype, options, work);
  });
}

inline void add_reduce_scatter(
    Operation& operation, const Tensor& output, const Tensors& listed, const c10d::ReduceOp& given, int rank,
    int size) {
  ROUNDELAY_CHECK(
      ValueError, listed.size() == static_cast<size_t>(size), "reduce_scatter: ", listed.size(), " input tensors for ", size,
      " ranks; give one a rank");
  same_type(output, listed, "reduce_scatter");
  ROUNDELAY_CHECK(
      ValueError, listed[rank].numel() == output.numel(), "reduce_scatter: the output has ", output.numel(),
      " elements, but input ", rank, " has ", listed[rank].numel());
  Operator by = operator_of(given, output.scalar_type());
  Tensor target = reduced_to(output, operation.copies);
  operation.keep(target);
  operation.factor = by.factor;
  Tensors sources;
  for (const Tensor& each : listed) {
    sources.push_back(reduced_from(each));
  }
  Tensor flat = all_equal(listed) ? Tensor() : flat_of(sources);
  Address to = address(target);
  add_lists(
      operation, sources,
      [=](const rl_comm* comm, const rl_buffer* list, const rl_options* options, rl_work** work) {
        return rl().rl_reduce_scatter(comm, to.ptr, list, to.count, to.dtype, by.op, options, work);
      },
      [=](const rl_comm* comm, void* from, const uint64_t* lengths, const rl_options* options, rl_work** work) {
        return rl().rl_reduce_scatter_v(comm, to.ptr, from, lengths, to.dtype, by.op, options, work);
      },
      flat);
}

inline void add_reduce_scatter_single(
    Operation& operation, const Tensor& output, const Tensor& input, const c10d::ReduceOp& given, int size) {
  same_type(output, {input}, "reduce_scatter_single");
  ROUNDELAY_CHECK(
      ValueError, input.numel() == output.numel() * size, "reduce_scatter_single: the input has ", input.numel(),
      " elements; input tensor must be the same size as output size times world size, ", output.numel(), " times ",
      size);
  Operator by = operator_of(given, output.scalar_type());
  Tensor data = reduced_from(input);
  Tensor target = reduced_to(output, operation.copies);
  if (overlap(data, target)) {
    data = data.clone();
  }
  operation.keep(data);
  operation.keep(target);
  operation.factor = by.factor;
  Address to = address(target);
  void* from = data.data_ptr();
  operation.calls.push_back([=](const rl_comm* comm, const rl_options* options, rl_work** work) {
    return rl().rl_reduce_scatter_single(comm, to.ptr, from, to.count, to.dtype, by.op, options, work);
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
    Operation& operation, const Tensor& target, Lengths received, const Tensor& data, Lengths sent) {
  auto to = std::make_shared<Lengths>(std::move(received));
  auto from = std::make_shared<Lengths>(std::move(sent));
  Address output = address(target);
  void* input = data.data_ptr();
  operation.keep(target);
  operation.keep(data);
  operation.calls.push_back([=](const rl_comm* comm, const rl_options* options, rl_work** work) {
    return rl().rl_all_to_all_v_single(comm, output.ptr, to->data(), input, from->data(), output.dtype, options, work);
  });
}

inline void add_all_to_all_single(
    Operation& operation, const Tensor& output, const Tensor& input, const std::vector<int64_t>& received,
    const std::vector<int64_t>& sent, int size) {
  same_type(output, {input}, "all_to_all_single");
  Tensor data = readable(input);
  Tensor target = writable(output, operation.copies);
  if (overlap(data, target)) {
    data = data.clone();
  }
  bool equal = received.empty() && sent.empty() && target.numel() == data.numel() && data.numel() % size == 0;
  if (!equal) {
    Lengths to = rows(target, received, size, "output");
    add_all_to_all_v(operation, target, std::move(to), data, rows(data, sent, size, "input"));
    return;
  }
  operation.keep(data);
  operation.keep(target);
  Address from = address(data);
  void* to = target.data_ptr();
  operation.calls.push_back([=](const rl_comm* comm, const rl_options* options, rl_work** work) {
    return rl().rl_all_to_all_single(comm, to, from.ptr, from.count / size, from.dtype, options, work);
  });
}

inline void add_all_to_all(Operation& operation, const Tensors& outputs, const Tensors& inputs, int size) {
  ROUNDELAY_CHECK(
      ValueError, outputs.size() == static_cast<size_t>(size) && inputs.size() == outputs.size(), "all_to_all: ", outputs.size(),
      " outputs and ", inputs.size(), " inputs for ", size, " ranks");
  same_type(inputs[0], inputs, "all_to_all");
  same_type(inputs[0], outputs, "all_to_all");
  Tensors plain;
  for (const Tensor& input : inputs) {
    plain.push_back(readable(input));
  }
  // Lists that are equal here may differ on another rank, so that all call the same.
  Tensor target = flat_for(outputs, inputs[0].scalar_type(), operation.copies);
  add_all_to_all_v(operation, target, counts(outputs), flat_of(plain), counts(inputs));
}

inline void add_gather(
    Operation& operation, const std::vector<Tensors>& outputs, const Tensor& tensor, int rank, int64_t root, int size) {
  Tensor data = readable(tensor);
  auto list = std::make_shared<std::vector<rl_buffer>>();
  operation.keep(data);
  if (rank == root) {
    const Tensors& listed = one(outputs, "gather");
    ROUNDELAY_CHECK(
        ValueError, listed.size() == static_cast<size_t>(size), "gather: ", listed.size(), " output tensors for ", size,
        " ranks; give one a rank");
    same_type(tensor, listed, "gather");
    for (const Tensor& each : listed) {
      operation.keep(writable(each, operation.copies));
      list->push_back(buffer(operation.memory.back()));
    }
  } else {
    ROUNDELAY_CHECK(
        ValueError, outputs.empty() || outputs[0].empty(), "gather: requires empty output on non-root: only the root has outputs");
  }
  Address from = address(data);
  operation.calls.push_back([=](const rl_comm* comm, const rl_options* options, rl_work** work) {
    const rl_buffer* to = list->empty() ? nullptr : list->data();
    return rl().rl_gather(comm, to, from.ptr, from.count, from.dtype, root, options, work);
  });
}

inline void add_scatter(
    Operation& operation, const Tensor& output, const std::vector<Tensors>& inputs, int rank, int64_t root, int size) {
  Tensor target = writable(output, operation.copies);
  auto list = std::make_shared<std::vector<rl_buffer>>();
  operation.keep(target);
  if (rank == root) {
    const Tensors& listed = one(inputs, "scatter");
    ROUNDELAY_CHECK(
        ValueError, listed.size() == static_cast<size_t>(size), "scatter: ", listed.size(), " input tensors for ", size,
        " ranks; give one a rank");
    same_type(output, listed, "scatter");
    for (const Tensor& each : listed) {
      operation.keep(readable(each));
      list->push_back(buffer(operation.memory.back()));
    }
  } else {
    ROUNDELAY_CHECK(
        ValueError, inputs.empty() || inputs[0].empty(), "scatter: requires empty input on non-root: only the root has inputs");
  }
  Address to = address(target);
  operation.calls.push_back([=](const rl_comm* comm, const rl_options* options, rl_work** work) {
    const rl_buffer* from = list->empty() ? nullptr : list->data();
    return rl().rl_scatter(comm, to.ptr, from, to.count, to.dtype, root, options, work);
  });
}

// Sums COO tensors of all ranks, in place; the ranks' numbers of elements may differ.
inline void sum_sparse(Calls& calls, const Tensor& tensor, int size, Milliseconds timeout) {
  ROUNDELAY_CHECK(
      ValueError, tensor.layout() == at::kSparse, "roundelay: all_reduce does not take the layout ", tensor.layout(),
      "; convert it with to_sparse_coo");
  at::NoGradGuard no_grad;
  Tensor own = tensor.detach().coalesce();
  // A row an element, so that the ranks' parts stand one after the other.
  Tensor indices = own.indices().t().contiguous();
  Tensor values = own.values().contiguous();
  auto begun = [&](const char* label) {
    Operation operation;
    operation.type = c10d::OpType::_ALLREDUCE_SPARSE;
    operation.label = label;
    operation.timeout = timeout;
    return operation;
  };
  Tensor lengths = at::empty({size}, at::kLong);
  Operation first = begun("all_reduce");
  add_all_gather_single(first, lengths, at::full({1}, indices.size(0), at::kLong), size);
  calls.execute(std::move(first));
  auto collected = [&](const Tensor& part) {
    Tensors parts;
    for (int each = 0; each < size; ++each) {
      std::vector<int64_t> shape = part.sizes().vec();
      shape[0] = lengths[each].item<int64_t>();
      parts.push_back(at::empty(shape, part.options()));
    }
    Operation next = begun("all_reduce");
    add_all_gather(next, parts, part, calls.rank, size);
    calls.execute(std::move(next));
    return at::cat(parts);
  };
  Tensor all_indices = collected(indices).t();
  Tensor all_values = collected(values);
  const_cast<Tensor&>(tensor).copy_(
      at::sparse_coo_tensor(all_indices, all_values, tensor.sizes(), all_values.options().layout(at::kSparse))
          .coalesce());
}

} // namespace roundelay
