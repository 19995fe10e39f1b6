// A backend of torchcomms over the C interface of roundelay.
//
// `python -m roundelay torchcomms build` compiles it against the user's torchcomms and torch; torchcomms opens it
// through create_dynamic_loader_roundelay, and compares the versions of its interface.


#include "shim/base.h"

namespace torch::comms {
namespace {

class Backend : public Base {
 public:
  // Messages.

  c10::intrusive_ptr<TorchWork> send(
      const at::Tensor& tensor, int dst, bool async_op, const SendOptions& options) override {
    live("send");
    peer(dst, "dst");
    if (device_.is_cuda()) {
      return batch_op_issue({{BatchSendRecv::P2POp::OpType::SEND, tensor, dst}}, async_op, batched(options));
    }
    Call call;
    const Span data = bytes(call.readable(tensor));
    return execute(std::move(call), async_op, options, [&](const rl_options* with, rl_work** work) {
      return rl().rl_send(comm_, data.ptr, data.count, data.dtype, dst, tag_of(options), with, work);
    });
  }

  c10::intrusive_ptr<TorchWork> recv(at::Tensor& tensor, int src, bool async_op, const RecvOptions& options) override {
    live("recv");
    peer(src, "src");
    if (device_.is_cuda()) {
      return batch_op_issue({{BatchSendRecv::P2POp::OpType::RECV, tensor, src}}, async_op, batched(options));
    }
    Call call;
    const Span data = bytes(call.writable(tensor));
    return execute(std::move(call), async_op, options, [&](const rl_options* with, rl_work** work) {
      return rl().rl_recv(comm_, data.ptr, data.count, data.dtype, src, tag_of(options), with, work);
    });
  }

  c10::intrusive_ptr<TorchWork> batch_op_issue(
      const std::vector<BatchSendRecv::P2POp>& ops, bool async_op, const BatchP2POptions& options) override {
    live("batch_op_issue");
    if (ops.empty()) {
      refuse("Cannot issue empty batch operation: add messages by send and recv");
    }
    using Type = BatchSendRecv::P2POp::OpType;
    Call call;
    std::vector<Span> spans;
    for (const auto& op : ops) {
      peer(op.peer, op.type == Type::SEND ? "dst" : "src");
      const at::Tensor data = op.type == Type::SEND ? call.readable(op.tensor) : call.writable(op.tensor);
      spans.push_back(bytes(data));
    }
    on_device(call);
    if (device_.is_cuda()) {
      std::vector<rl_message> messages;
      for (size_t i = 0; i < ops.size(); ++i) {
        messages.push_back({spans[i].ptr, spans[i].count, spans[i].dtype, static_cast<uint32_t>(ops[i].peer),
                            ops[i].type == Type::SEND ? 1 : 0});
      }
      return execute(std::move(call), async_op, options, [&](const rl_options* with, rl_work** work) {
        return rl().rl_batch(comm_, messages.data(), messages.size(), with, work);
      });
    }
    rl_options with = native(options);
    const std::string hints = text_of(options.hints);
    with.hints = hints.empty() ? nullptr : hints.c_str();
    std::vector<rl_work*> works;
    for (size_t i = 0; i < ops.size(); ++i) {
      rl_work* work = nullptr;
      const auto& at = spans[i];
      const uint32_t peer = static_cast<uint32_t>(ops[i].peer);
      const int32_t status = ops[i].type == Type::SEND
          ? rl().rl_send(comm_, at.ptr, at.count, at.dtype, peer, 0, &with, &work)
          : rl().rl_recv(comm_, at.ptr, at.count, at.dtype, peer, 0, &with, &work);
      if (status != 0) {
        const auto error = roundelay::last_error();
        // What was started still uses the tensors.
        for (rl_work* before : works) {
          int32_t ended = 0;
          rl().rl_work_wait(before, UINT64_MAX, &ended);
          rl().rl_work_free(before);
        }
        fail(error);
      }
      works.push_back(work);
    }
    return background(std::move(works), std::move(call), async_op, options.timeout);
  }

  // Collectives.

  c10::intrusive_ptr<TorchWork> broadcast(
      at::Tensor& tensor, int root, bool async_op, const BroadcastOptions& options) override {
    live("broadcast");
    peer(root, "root");
    Call call;
    const Span data = span(call.writable(tensor, root == rank_));
    return execute(std::move(call), async_op, options, [&](const rl_options* with, rl_work** work) {
      return rl().rl_broadcast(comm_, data.ptr, data.count, data.dtype, root, with, work);
    });
  }

  c10::intrusive_ptr<TorchWork> all_reduce(
      at::Tensor& tensor, const ReduceOp& op, bool async_op, const AllReduceOptions& options) override {
    live("all_reduce");
    const Operator by = operator_of(op, tensor);
    Call call;
    const Span data = span(call.reduced_to(tensor, true));
    return execute(std::move(call), async_op, options, [&](rl_options* with, rl_work** work) {
      with->factor = by.factor;
      return rl().rl_all_reduce(comm_, data.ptr, data.count, data.dtype, by.op, with, work);
    });
  }

  c10::intrusive_ptr<TorchWork> reduce(
      const at::Tensor& tensor, int root, const ReduceOp& op, bool async_op, const ReduceOptions& options) override {
    live("reduce");
    peer(root, "root");
    const Operator by = operator_of(op, tensor);
    Call call;
    const at::Tensor input = call.reduced_from(tensor);
    const Span data = span(input);
    void* output = nullptr;
    if (root == rank_) {
      const at::Tensor result = at::empty_like(input);
      call.keep.push_back(result);
      call.finish_by(tensor.detach(), result);
      output = result.data_ptr();
    }
    return execute(std::move(call), async_op, options, [&](rl_options* with, rl_work** work) {
      with->factor = by.factor;
      return rl().rl_reduce(comm_, output, data.ptr, data.count, data.dtype, by.op, root, with, work);
    });
  }

  c10::intrusive_ptr<TorchWork> all_gather(
      const Tensors& tensor_list, const at::Tensor& tensor, bool async_op, const AllGatherOptions& options) override {
    live("all_gather");
    same_size(tensor_list, tensor, "all_gather", "tensor_list");
    return gathered(tensor_list, tensor, async_op, options);
  }

  c10::intrusive_ptr<TorchWork> all_gather_v(
      const Tensors& tensor_list, const at::Tensor& tensor, bool async_op, const AllGatherOptions& options) override {
    live("all_gather_v");
    count(tensor_list, "all_gather_v", "tensor_list");
    if (tensor_list[rank_].numel() != tensor.numel()) {
      refuse("all_gather_v: the input has ", tensor.numel(), " elements, tensor_list[", rank_, "] has ",
             tensor_list[rank_].numel());
    }
    return gathered(tensor_list, tensor, async_op, options);
  }

  c10::intrusive_ptr<TorchWork> all_gather_single(
      at::Tensor& output, const at::Tensor& input, bool async_op, const AllGatherSingleOptions& options) override {
    live("all_gather_single");
    same_type({output}, input, "all_gather_single");
    if (output.numel() != input.numel() * size_) {
      refuse("all_gather_single: the output has ", output.numel(), " elements, and ", size_, " inputs of ",
             input.numel(), " come");
    }
    Call call;
    at::Tensor target = call.writable(output);
    const Span data = span(apart(call, call.readable(input), target));
    return execute(std::move(call), async_op, options, [&](const rl_options* with, rl_work** work) {
      return rl().rl_all_gather_single(comm_, target.data_ptr(), data.ptr, data.count, data.dtype, with, work);
    });
  }

  c10::intrusive_ptr<TorchWork> reduce_scatter(
      at::Tensor& output, const Tensors& input_list, const ReduceOp& op, bool async_op,
      const ReduceScatterOptions& options) override {
    live("reduce_scatter");
    same_size(input_list, output, "reduce_scatter", "input_list");
    return scattered(output, input_list, op, async_op, options);
  }

  c10::intrusive_ptr<TorchWork> reduce_scatter_v(
      at::Tensor& output, const Tensors& input_list, const ReduceOp& op, bool async_op,
      const ReduceScatterOptions& options) override {
    live("reduce_scatter_v");
    count(input_list, "reduce_scatter_v", "input_list");
    if (input_list[rank_].numel() != output.numel()) {
      refuse("reduce_scatter_v: the output has ", output.numel(), " elements, input_list[", rank_, "] has ",
             input_list[rank_].numel());
    }
    return scattered(output, input_list, op, async_op, options);
  }

  c10::intrusive_ptr<TorchWork> reduce_scatter_single(
      at::Tensor& output, const at::Tensor& input, const ReduceOp& op, bool async_op,
      const ReduceScatterSingleOptions& options) override {
    live("reduce_scatter_single");
    same_type({output}, input, "reduce_scatter_single");
    if (input.numel() != output.numel() * size_) {
      refuse("reduce_scatter_single: the input has ", input.numel(), " elements, and ", size_, " outputs of ",
             output.numel(), " are made of it");
    }
    const Operator by = operator_of(op, output);
    Call call;
    at::Tensor target = call.reduced_to(output);
    at::Tensor source = apart(call, call.reduced_from(input), target);
    const Span data = span(target);
    return execute(std::move(call), async_op, options, [&](rl_options* with, rl_work** work) {
      with->factor = by.factor;
      return rl().rl_reduce_scatter_single(
          comm_, data.ptr, source.data_ptr(), data.count, data.dtype, by.op, with, work);
    });
  }

  c10::intrusive_ptr<TorchWork> all_to_all_single(
      at::Tensor& output, const at::Tensor& input, bool async_op, const AllToAllSingleOptions& options) override {
    live("all_to_all_single");
    same_type({output}, input, "all_to_all_single");
    if (output.numel() != input.numel() || input.numel() % size_ != 0) {
      refuse("all_to_all_single: the output has ", output.numel(), " elements and the input ", input.numel(),
             ": they must be equal, and divide by ", size_, " ranks");
    }
    Call call;
    at::Tensor target = call.writable(output);
    const Span data = span(apart(call, call.readable(input), target));
    return execute(std::move(call), async_op, options, [&](const rl_options* with, rl_work** work) {
      return rl().rl_all_to_all_single(
          comm_, target.data_ptr(), data.ptr, data.count / size_, data.dtype, with, work);
    });
  }

  c10::intrusive_ptr<TorchWork> all_to_all_v_single(
      at::Tensor& output, const at::Tensor& input, const std::vector<uint64_t>& output_split_sizes,
      const std::vector<uint64_t>& input_split_sizes, bool async_op, const AllToAllvSingleOptions& options) override {
    live("all_to_all_v_single");
    same_type({output}, input, "all_to_all_v_single");
    const auto received = rows(output, output_split_sizes, "output");
    const auto sent = rows(input, input_split_sizes, "input");
    Call call;
    at::Tensor target = call.writable(output, true);
    const Span data = span(apart(call, call.readable(input), target));
    return execute(std::move(call), async_op, options, [&](const rl_options* with, rl_work** work) {
      return rl().rl_all_to_all_v_single(
          comm_, target.data_ptr(), received.data(), data.ptr, sent.data(), data.dtype, with, work);
    });
  }

  c10::intrusive_ptr<TorchWork> all_to_all(
      const Tensors& output_tensor_list, const Tensors& input_tensor_list, bool async_op,
      const AllToAllOptions& options) override {
    live("all_to_all");
    count(output_tensor_list, "all_to_all", "output_tensor_list");
    count(input_tensor_list, "all_to_all", "input_tensor_list");
    same_type(output_tensor_list, input_tensor_list.front(), "all_to_all");
    Call call;
    // Each rank sees its own lists only, so all ranks take the way that unequal sizes need.
    const at::Tensor source = flat(input_tensor_list);
    call.keep.push_back(source);
    const at::Tensor target = flat_for(output_tensor_list, call);
    const auto sent = counts_of(input_tensor_list), received = counts_of(output_tensor_list);
    return execute(std::move(call), async_op, options, [&](const rl_options* with, rl_work** work) {
      return rl().rl_all_to_all_v_single(
          comm_, target.data_ptr(), received.data(), source.data_ptr(), sent.data(), type_of(source).dtype, with, work);
    });
  }

  c10::intrusive_ptr<TorchWork> barrier(bool async_op, const BarrierOptions& options) override {
    live("barrier");
    return execute(Call{}, async_op, options, [&](const rl_options* with, rl_work** work) {
      return rl().rl_barrier(comm_, with, work);
    });
  }

  c10::intrusive_ptr<TorchWork> scatter(
      at::Tensor& output_tensor, const Tensors& input_tensor_list, int root, bool async_op,
      const ScatterOptions& options) override {
    live("scatter");
    peer(root, "root");
    Call call;
    const Span target = span(call.writable(output_tensor));
    Tensors sources;
    if (root == rank_) {
      same_size(input_tensor_list, output_tensor, "scatter", "input_tensor_list");
      for (const auto& tensor : input_tensor_list) {
        sources.push_back(call.readable(tensor));
      }
    }
    const auto inputs = buffers(sources);
    return execute(std::move(call), async_op, options, [&](const rl_options* with, rl_work** work) {
      return rl().rl_scatter(
          comm_, target.ptr, inputs.empty() ? nullptr : inputs.data(), target.count, target.dtype, root, with, work);
    });
  }

  c10::intrusive_ptr<TorchWork> gather(
      const Tensors& output_tensor_list, const at::Tensor& input_tensor, int root, bool async_op,
      const GatherOptions& options) override {
    live("gather");
    peer(root, "root");
    Call call;
    const Span source = span(call.readable(input_tensor));
    Tensors targets;
    if (root == rank_) {
      same_size(output_tensor_list, input_tensor, "gather", "output_tensor_list");
      for (const auto& tensor : output_tensor_list) {
        targets.push_back(call.writable(tensor));
      }
    }
    const auto outputs = buffers(targets);
    return execute(std::move(call), async_op, options, [&](const rl_options* with, rl_work** work) {
      return rl().rl_gather(
          comm_, outputs.empty() ? nullptr : outputs.data(), source.ptr, source.count, source.dtype, root, with, work);
    });
  }

 private:
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
