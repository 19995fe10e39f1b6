// A backend of torchcomms over the C interface of roundelay.
//
// `python -m roundelay torchcomms build` compiles it against the user's torchcomms and torch; torchcomms opens it
// through create_dynamic_loader_roundelay, and compares the versions of its interface.


#include "shim/base.h"

namespace torch::comms {
namespace {

// Returns an operator for a type.
roundelay::Operator operator_of(const ReduceOp& op, const at::Tensor& tensor) {
  roundelay::Operator found{
      roundelay::operator_for<ReduceOp::RedOpType>(static_cast<int>(op.type()), tensor.scalar_type())};
  if (found.op != RL_PREMUL_SUM) {
    return found;
  }
  const auto& factor = *op.factor();
  if (const auto* number = std::get_if<double>(&factor)) {
    found.factor = *number;
    return found;
  }
  const auto& held = std::get<at::Tensor>(factor);
  if (held.numel() != 1) {
    refuse("the factor of PREMUL_SUM has ", held.numel(), " elements: give a number, or a tensor of one element");
  }
  found.factor = held.item<double>();
  return found;
}

class Backend : public Base {
 public:
  // Messages.

  c10::intrusive_ptr<TorchWork> send(
      const at::Tensor& tensor, int dst, bool async_op, const SendOptions& options) override {
    live("send");
    return messages({{BatchSendRecv::P2POp::OpType::SEND, tensor, dst}}, tag_of(options), async_op, options);
  }

  c10::intrusive_ptr<TorchWork> recv(at::Tensor& tensor, int src, bool async_op, const RecvOptions& options) override {
    live("recv");
    return messages({{BatchSendRecv::P2POp::OpType::RECV, tensor, src}}, tag_of(options), async_op, options);
  }

  c10::intrusive_ptr<TorchWork> batch_op_issue(
      const std::vector<BatchSendRecv::P2POp>& ops, bool async_op, const BatchP2POptions& options) override {
    live("batch_op_issue");
    if (ops.empty()) {
      refuse("Cannot issue empty batch operation: add messages by send and recv");
    }
    return messages(ops, 0, async_op, options);
  }

  // Collectives.

  c10::intrusive_ptr<TorchWork> broadcast(
      at::Tensor& tensor, int root, bool async_op, const BroadcastOptions& options) override {
    live("broadcast");
    peer(root, "root");
    OperationCalls operation;
    add_broadcast(operation, tensor, rank_, root);
    return execute(std::move(operation), async_op, options);
  }

  c10::intrusive_ptr<TorchWork> all_reduce(
      at::Tensor& tensor, const ReduceOp& op, bool async_op, const AllReduceOptions& options) override {
    live("all_reduce");
    const auto by = operator_of(op, tensor);
    if (tensor.layout() == at::kSparse) {
      roundelay::sum_sparse(
          tensor, by, rank_, size_, [&](OperationCalls part) { execute(std::move(part), false, options)->wait(); });
      return c10::make_intrusive<TorchWorkCompleted>();
    }
    OperationCalls operation;
    add_all_reduce(operation, tensor, by);
    return execute(std::move(operation), async_op, options);
  }

  c10::intrusive_ptr<TorchWork> reduce(
      const at::Tensor& tensor, int root, const ReduceOp& op, bool async_op, const ReduceOptions& options) override {
    live("reduce");
    peer(root, "root");
    OperationCalls operation;
    add_reduce(operation, tensor, rank_, root, operator_of(op, tensor));
    return execute(std::move(operation), async_op, options);
  }

  c10::intrusive_ptr<TorchWork> all_gather(
      const Tensors& tensor_list, const at::Tensor& tensor, bool async_op, const AllGatherOptions& options) override {
    live("all_gather");
    same_size(tensor_list, tensor, "all_gather", "tensor_list");
    return all_gather_v(tensor_list, tensor, async_op, options);
  }

  c10::intrusive_ptr<TorchWork> all_gather_v(
      const Tensors& tensor_list, const at::Tensor& tensor, bool async_op, const AllGatherOptions& options) override {
    live("all_gather_v");
    OperationCalls operation;
    add_all_gather(operation, tensor_list, tensor, rank_, size_);
    return execute(std::move(operation), async_op, options);
  }

  c10::intrusive_ptr<TorchWork> all_gather_single(
      at::Tensor& output, const at::Tensor& input, bool async_op, const AllGatherSingleOptions& options) override {
    live("all_gather_single");
    OperationCalls operation;
    add_all_gather_single(operation, output, input, size_);
    return execute(std::move(operation), async_op, options);
  }

  c10::intrusive_ptr<TorchWork> reduce_scatter(
      at::Tensor& output, const Tensors& input_list, const ReduceOp& op, bool async_op,
      const ReduceScatterOptions& options) override {
    live("reduce_scatter");
    same_size(input_list, output, "reduce_scatter", "input_list");
    return reduce_scatter_v(output, input_list, op, async_op, options);
  }

  c10::intrusive_ptr<TorchWork> reduce_scatter_v(
      at::Tensor& output, const Tensors& input_list, const ReduceOp& op, bool async_op,
      const ReduceScatterOptions& options) override {
    live("reduce_scatter_v");
    OperationCalls operation;
    add_reduce_scatter(operation, output, input_list, operator_of(op, output), rank_, size_);
    return execute(std::move(operation), async_op, options);
  }

  c10::intrusive_ptr<TorchWork> reduce_scatter_single(
      at::Tensor& output, const at::Tensor& input, const ReduceOp& op, bool async_op,
      const ReduceScatterSingleOptions& options) override {
    live("reduce_scatter_single");
    OperationCalls operation;
    add_reduce_scatter_single(operation, output, input, operator_of(op, output), size_);
    return execute(std::move(operation), async_op, options);
  }

  c10::intrusive_ptr<TorchWork> all_to_all_single(
      at::Tensor& output, const at::Tensor& input, bool async_op, const AllToAllSingleOptions& options) override {
    live("all_to_all_single");
    if (output.numel() != input.numel() || input.numel() % size_ != 0) {
      refuse("all_to_all_single: the output has ", output.numel(), " elements and the input ", input.numel(),
             ": they must be equal, and divide by ", size_, " ranks");
    }
    OperationCalls operation;
    add_all_to_all_single(operation, output, input, {}, {}, size_);
    return execute(std::move(operation), async_op, options);
  }

  c10::intrusive_ptr<TorchWork> all_to_all_v_single(
      at::Tensor& output, const at::Tensor& input, const std::vector<uint64_t>& output_split_sizes,
      const std::vector<uint64_t>& input_split_sizes, bool async_op, const AllToAllvSingleOptions& options) override {
    live("all_to_all_v_single");
    OperationCalls operation;
    add_all_to_all_single(
        operation, rows(output, output_split_sizes, "output"), rows(input, input_split_sizes, "input"),
        {output_split_sizes.begin(), output_split_sizes.end()}, {input_split_sizes.begin(), input_split_sizes.end()},
        size_);
    return execute(std::move(operation), async_op, options);
  }

  c10::intrusive_ptr<TorchWork> all_to_all(
      const Tensors& output_tensor_list, const Tensors& input_tensor_list, bool async_op,
      const AllToAllOptions& options) override {
    live("all_to_all");
    OperationCalls operation;
    add_all_to_all(operation, output_tensor_list, input_tensor_list, size_);
    return execute(std::move(operation), async_op, options);
  }

  c10::intrusive_ptr<TorchWork> barrier(bool async_op, const BarrierOptions& options) override {
    live("barrier");
    OperationCalls operation;
    add_barrier(operation);
    return execute(std::move(operation), async_op, options);
  }

  // The lists of ranks that are not the root count for nothing.

  c10::intrusive_ptr<TorchWork> scatter(
      at::Tensor& output_tensor, const Tensors& input_tensor_list, int root, bool async_op,
      const ScatterOptions& options) override {
    live("scatter");
    peer(root, "root");
    const Tensors list = root == rank_ ? input_tensor_list : Tensors();
    same_size(list, output_tensor, "scatter", "input_tensor_list");
    OperationCalls operation;
    add_scatter(operation, output_tensor, {list}, rank_, root, size_);
    return execute(std::move(operation), async_op, options);
  }

  c10::intrusive_ptr<TorchWork> gather(
      const Tensors& output_tensor_list, const at::Tensor& input_tensor, int root, bool async_op,
      const GatherOptions& options) override {
    live("gather");
    peer(root, "root");
    const Tensors list = root == rank_ ? output_tensor_list : Tensors();
    same_size(list, input_tensor, "gather", "output_tensor_list");
    OperationCalls operation;
    add_gather(operation, {list}, input_tensor, rank_, root, size_);
    return execute(std::move(operation), async_op, options);
  }

 private:
  // Messages are bytes: the ends need not agree on the type.
  template <typename Options>
  c10::intrusive_ptr<TorchWork> messages(
      const std::vector<BatchSendRecv::P2POp>& ops, uint64_t tag, bool async_op, const Options& options) {
    OperationCalls operation;
    std::vector<rl_message> list;
    for (const auto& op : ops) {
      const bool sends = op.type == BatchSendRecv::P2POp::OpType::SEND;
      peer(op.peer, sends ? "dst" : "src");
      const at::Tensor data = sends ? operation.memory.readable(op.tensor) : operation.memory.writable(op.tensor);
      list.push_back({data.data_ptr(), data.nbytes(), RL_I8, static_cast<uint32_t>(op.peer), sends ? 1 : 0});
    }
    if (device_.is_cuda()) {
      operation.calls.push_back([list](const rl_comm* comm, const rl_options* with, rl_work** work) {
        return rl().rl_batch(comm, list.data(), list.size(), with, work);
      });
      return execute(std::move(operation), async_op, options);
    }
    for (const rl_message& each : list) {
      operation.calls.push_back([each, tag](const rl_comm* comm, const rl_options* with, rl_work** work) {
        return each.is_send ? rl().rl_send(comm, each.ptr, each.count, each.dtype, each.peer, tag, with, work)
                            : rl().rl_recv(comm, each.ptr, each.count, each.dtype, each.peer, tag, with, work);
      });
    }
    return execute(std::move(operation), async_op, options);
  }

  std::shared_ptr<Base> another() const override {
    return std::make_shared<Backend>();
  }
};

TorchCommBackend* make() {
  return new Backend();
}

void destroy(TorchCommBackend* backend) {
  delete backend;
}

const char* version() {
  return TORCHCOMM_BACKEND_ABI_VERSION;
}

} // namespace
} // namespace torch::comms

extern "C" __attribute__((visibility("default"))) torch::comms::DynamicLoaderInterface
create_dynamic_loader_roundelay() {
  return {&torch::comms::make, &torch::comms::destroy, &torch::comms::version};
}
