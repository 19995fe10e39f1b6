// One rank's part in a communicator: its life, its settings and its parts, and what all operations have in common.

#pragma once

#include <comms/torchcomms/utils/Utils.hpp>

#include "join.h"
#include "window.h"

#include <c10/core/DeviceGuard.h>

#include <atomic>
#include <memory>
#include <set>
#include <variant>

namespace torch::comms {
namespace {

constexpr const char* elsewhere =
    ": make a communicator for that device; torch.distributed makes one for all devices of one name, so name the device"
    " too, as in init_process_group(\"cuda:roundelay\")";

class Base : public TorchCommBackend {
 public:
  Base() {
    listener_->set([this] { tell(); });
  }

  ~Base() override {
    listener_->set(nullptr);
    if (host_ != nullptr) {
      ROUNDELAY_WARN("roundelay: the communicator ", name_, " ends without finalize()");
      release();
    }
  }

  // Its life.

  void init(at::Device device, const std::string& name, const CommOptions& options) override {
    if (joined_ || host_ != nullptr) {
      refuse("the communicator ", name_, finalized_ ? " was finalized already" : " is there already");
    }
    if (device.type() != at::kCPU && device.type() != at::kCUDA) {
      refuse("the device is ", device, ": there are cpu and cuda");
    }
    if (options.enable_reconfigure) {
      return wait(device, name, options);
    }
    const auto [rank, size] = query_ranksize();
    if (rank < 0 || size < 1 || rank >= size) {
      refuse("rank ", rank, " of ", size, ": start by `torchrun`, or set TORCHCOMM_RANK and TORCHCOMM_SIZE");
    }
    // What the ranks need only until they have joined ends with this function.
    const Meeting meeting =
        options.store ? Meeting{below(options.store, name, rank), nullptr} : meet(name, rank, options.timeout);
    join(device, name, options, meeting.store, rank, size);
  }

  void finalize() override {
    there("finalize");
    finalized_ = true;
    release();
    listener_->wait_for_all(std::chrono::seconds(20));
  }

  int getRank() const override {
    return rank_;
  }

  int getSize() const override {
    return size_;
  }

  std::string_view getBackendName() const override {
    return "roundelay";
  }

  std::string_view getBackendVersion() const override {
    return rl().rl_version();
  }

  std::string_view getCommName() const override {
    return name_;
  }

  const CommOptions& getOptions() const override {
    return options_;
  }

  const at::Device& getDevice() const override {
    return device_;
  }

  // What has no `override` here and below is not there in the interface of torchcomms 0.3.

  void setTimeout(milliseconds timeout) {
    there("set_timeout");
    check(rl().rl_set_timeout(host_, limit_of(timeout)));
    if (comm_ != nullptr && comm_ != host_) {
      check(rl().rl_set_timeout(comm_, limit_of(timeout)));
    }
    options_.timeout = timeout;
  }

  void setHints(Hints hints) {
    live("set_hints");
    check(rl().rl_set_hints(comm_, text_of(hints).c_str()));
    options_.hints = std::move(hints);
  }

  bool isAbortSupported() const override {
    return true;
  }

  bool isAborted() const override {
    return host_ != nullptr && rl().rl_is_aborted(host_) != 0;
  }

  void abort() override {
    there("abort");
    tell();
    check(rl().rl_abort(host_, "abort() was called on the communicator"));
    if (comm_ != nullptr && comm_ != host_) {
      check(rl().rl_abort(comm_, "abort() was called on the communicator"));
    }
  }

  bool isInitialized() const override {
    return joined_ && !finalized_;
  }

  // Nothing needs registration.
  void tensor_register(const at::Tensor&) override {}
  void tensor_deregister(const at::Tensor&) override {}

  std::shared_ptr<TorchCommWindow> new_window(const std::optional<at::Tensor>& tensor) override {
    live("new_window");
    auto window = std::make_shared<Window>(host_, size_);
    if (tensor) {
      window->tensor_register(*tensor, true);
    }
    return window;
  }

  bool supportsReconfigure() const {
    return true;
  }

  InitHandle getInitHandle() const override {
    there("getInitHandle");
    std::string handle(1024, '\0');
    uint64_t length = 0;
    check(rl().rl_reconfigure_handle(host_, handle.data(), handle.size(), &length));
    handle.resize(length);
    return handle;
  }

  // Rank and size are others when it returns; the work has ended then.
  c10::intrusive_ptr<TorchWork> reconfigure(const ReconfigureOptions& options) override {
    there("reconfigure");
    if (used_.count(options.uuid) != 0) {
      refuse("reconfigure: uuid ", options.uuid, " was already used by ", name_, ": pass another one");
    }
    std::vector<const char*> handles;
    const bool ordered = std::holds_alternative<std::vector<InitHandle>>(options.handles);
    std::visit(
        [&](const auto& all) {
          for (const InitHandle& handle : all) {
            handles.push_back(handle.c_str());
          }
        },
        options.handles);
    if (comm_ != host_) {
      rl().rl_free(comm_);
      comm_ = nullptr;
    }
    const milliseconds given = options.timeout.value_or(options_.timeout);
    const uint64_t limit = limit_of(given.count() > 0 ? given : options_.timeout);
    const std::string id = std::to_string(options.uuid);
    check(rl().rl_reconfigure(host_, id.c_str(), handles.data(), handles.size(), ordered ? 1 : 0, limit));
    used_.insert(options.uuid);
    told_ = false;
    rank_ = static_cast<int>(rl().rl_rank(host_));
    size_ = static_cast<int>(rl().rl_size(host_));
    open();
    if (!options.hints.empty()) {
      check(rl().rl_set_hints(comm_, text_of(options.hints).c_str()));
    }
    return c10::make_intrusive<TorchWorkCompleted>();
  }

  AllGatherPHandle all_gather_p_init(at::Tensor&, const AllGatherPInitOptions&) override {
    refuse("all_gather_p_init not implemented: use all_gather_single");
  }

  std::shared_ptr<TorchCommBackend> split(
      const std::vector<int>& ranks, const std::string& name, const CommOptions& options) override {
    live("split");
    if (!store_) {
      refuse("split: ", name_, " was made with enable_reconfigure and has no store: make a part of other handles");
    }
    std::set<int> seen;
    std::string listed;
    for (const int rank : ranks) {
      if (rank < 0 || rank >= size_) {
        refuse("split: rank ", rank, " must be in range [0, ", size_, ")");
      }
      if (!seen.insert(rank).second) {
        refuse("split: rank ", rank, " is listed twice");
      }
      listed += "," + std::to_string(rank);
    }
    if (ranks.empty()) {
      return nullptr;
    }
    const auto own = std::find(ranks.begin(), ranks.end(), rank_);
    if (own == ranks.end()) {
      refuse("split: rank ", rank_, " is not in the list: pass an empty one on ranks that are in no part");
    }
    CommOptions merged = options;
    merged.hints.insert(options_.hints.begin(), options_.hints.end());
    const int rank = static_cast<int>(own - ranks.begin());
    auto part = another();
    // Parts of the same name are distinguished by their ranks.
    part->join(device_, name, merged, below(store_, name + listed, rank), rank, static_cast<int>(ranks.size()));
    return part;
  }

 protected:
  // Calls the abort hooks, once.
  void tell() {
    if (!told_.exchange(true)) {
      runAbortHooks();
    }
  }

  // Returns a backend that has not joined yet.
  virtual std::shared_ptr<Base> another() const = 0;

  void join(
      at::Device device, const std::string& name, const CommOptions& options,
      const c10::intrusive_ptr<c10d::Store>& store, int rank, int size) {
    begin(device, name, options, rank);
    store_ = store;
    rl_store notes{store.get(), &store_set, &store_get};
    const uint64_t timeout = limit_of(options.timeout);
    check(rl().rl_join(rank, size, &notes, text_of(options.hints).c_str(), timeout, &host_));
    rank_ = rank;
    size_ = size;
    open();
  }

  // Does not wait: the first ranks come by `reconfigure`.
  void wait(at::Device device, const std::string& name, const CommOptions& options) {
    begin(device, name, options, query_ranksize().first);
    check(rl().rl_alone(text_of(options.hints).c_str(), &host_));
  }

  void begin(at::Device device, const std::string& name, const CommOptions& options, int rank) {
    load_native();
    if (device.is_cuda()) {
      // Programs rely on what torchcomms' other backends do: each rank has a GPU, which is the current one from now on.
      const c10::impl::VirtualGuardImpl gpus(device.type());
      if (!device.has_index()) {
        const int index = rank < 0 ? gpus.getDevice().index() : rank % std::max<int>(gpus.deviceCount(), 1);
        device.set_index(static_cast<c10::DeviceIndex>(index));
      }
      gpus.setDevice(device);
    }
    device_ = device;
    name_ = name;
    options_ = options;
    options_.store = nullptr;
  }

  // Has the ranks that came together be ready for operations, on their GPUs if that is the device.
  void open() {
    joined_ = true;
    const uint64_t timeout = limit_of(options_.timeout);
    if (timeout != 0) {
      check(rl().rl_set_timeout(host_, timeout));
    }
    comm_ = host_;
    if (device_.is_cuda()) {
      comm_ = nullptr;
      check(rl().rl_cuda(host_, device_.index(), &comm_));
      if (timeout != 0) {
        check(rl().rl_set_timeout(comm_, timeout));
      }
    }
  }

  void release() {
    if (comm_ != host_) {
      rl().rl_free(comm_);
    }
    rl().rl_free(host_);
    comm_ = host_ = nullptr;
    store_.reset();
  }

  void there(const char* what) const {
    if (host_ == nullptr) {
      refuse(what, ": the communicator ", name_, joined_ ? " was finalized already" : " is not initialized");
    }
  }

  void live(const char* what) const {
    there(what);
    if (comm_ == nullptr) {
      refuse(what, ": the communicator ", name_, " has no ranks yet: call reconfigure first");
    }
  }

  void peer(int rank, const char* what) const {
    if (rank < 0 || rank >= size_) {
      refuse(what, " must be in range [0, ", size_, "), but got ", rank);
    }
  }

  void count(const Tensors& tensors, const char* what, const char* which) const {
    if (tensors.size() != static_cast<size_t>(size_)) {
      refuse(what, ": ", which, " has ", tensors.size(), " tensors for ", size_, " ranks: give one a rank");
    }
  }

  void same_type(const Tensors& tensors, const at::Tensor& one, const char* what) const {
    for (const auto& tensor : tensors) {
      if (tensor.scalar_type() != one.scalar_type() || tensor.device().type() != device_.type() ||
          one.device().type() != device_.type()) {
        refuse(what, ": all tensors need one type, and device ", device_, ", but there are ", one.scalar_type(), " on ",
               one.device(), " and ", tensor.scalar_type(), " on ", tensor.device(),
               tensor.device().type() == device_.type() && one.device().type() == device_.type() ? "" : elsewhere);
      }
    }
  }

  void same_size(const Tensors& tensors, const at::Tensor& one, const char* what, const char* which) const {
    count(tensors, what, which);
    same_type(tensors, one, what);
    for (const auto& tensor : tensors) {
      if (tensor.numel() != one.numel()) {
        refuse(what, ": all tensors of ", which, " must have ", one.numel(), " elements, but one has ", tensor.numel());
      }
    }
  }

  // Returns the elements of each rank's part of a tensor that is cut by rows.
  std::vector<uint64_t> rows(const at::Tensor& tensor, const std::vector<uint64_t>& sizes, const char* side) const {
    const uint64_t have = tensor.dim() == 0 ? 0 : tensor.size(0);
    uint64_t sum = 0;
    for (const uint64_t size : sizes) {
      sum += size;
    }
    if (sizes.size() != static_cast<size_t>(size_) || sum > have) {
      refuse("all_to_all_v_single: ", side, "_split_sizes has ", sizes.size(), " entries of ", sum, " rows for ", size_,
             " ranks and ", have, " rows");
    }
    const uint64_t row = have == 0 ? 0 : span(tensor).count / have;
    std::vector<uint64_t> elements;
    for (const uint64_t size : sizes) {
      elements.push_back(size * row);
    }
    return elements;
  }

  // Returns an input that lies beside the output: itself, or a copy.
  static at::Tensor apart(Call& call, at::Tensor input, const at::Tensor& output) {
    if (!overlap(input, output)) {
      return input;
    }
    call.keep.push_back(input.clone());
    return call.keep.back();
  }

  // Messages are bytes: the ends need not agree on the type.
  static Span bytes(const at::Tensor& tensor) {
    return {tensor.data_ptr(), tensor.nbytes(), RL_I8};
  }

  template <typename Options>
  static uint64_t tag_of(const Options& options) {
    if constexpr (requires { options.tag; }) {
      return static_cast<uint32_t>(options.tag);
    }
    return 0;
  }

  template <typename Options>
  static BatchP2POptions batched(const Options& options) {
    BatchP2POptions same;
    same.hints = options.hints;
    same.timeout = options.timeout;
    return same;
  }

  c10::intrusive_ptr<TorchWork> gathered(
      const Tensors& list, const at::Tensor& tensor, bool async_op, const AllGatherOptions& options) {
    same_type(list, tensor, "all_gather");
    Call call;
    const Span data = span(call.readable(tensor));
    if (equal(list)) {
      Tensors targets;
      for (const auto& each : list) {
        targets.push_back(call.writable(each));
      }
      const auto outputs = buffers(targets);
      return execute(std::move(call), async_op, options, [&](const rl_options* with, rl_work** work) {
        return rl().rl_all_gather(comm_, outputs.data(), data.ptr, data.count, data.dtype, with, work);
      });
    }
    const at::Tensor all = flat_for(list, call);
    const auto counts = counts_of(list);
    return execute(std::move(call), async_op, options, [&](const rl_options* with, rl_work** work) {
      return rl().rl_all_gather_v(comm_, all.data_ptr(), data.ptr, counts.data(), data.dtype, with, work);
    });
  }

  c10::intrusive_ptr<TorchWork> scattered(
      at::Tensor& output, const Tensors& list, const ReduceOp& op, bool async_op, const ReduceScatterOptions& options) {
    same_type(list, output, "reduce_scatter");
    const Operator by = operator_of(op, output);
    Call call;
    const Span target = span(call.reduced_to(output));
    Tensors sources;
    for (const auto& each : list) {
      sources.push_back(call.reduced_from(each));
    }
    const bool same = equal(list);
    const auto inputs = buffers(sources);
    const auto counts = counts_of(sources);
    at::Tensor all;
    if (!same) {
      all = flat(sources);
      call.keep.push_back(all);
    }
    return execute(std::move(call), async_op, options, [&](rl_options* with, rl_work** work) {
      with->factor = by.factor;
      if (same) {
        return rl().rl_reduce_scatter(
            comm_, target.ptr, inputs.data(), target.count, target.dtype, by.op, with, work);
      }
      return rl().rl_reduce_scatter_v(
          comm_, target.ptr, all.data_ptr(), counts.data(), target.dtype, by.op, with, work);
    });
  }

  template <typename Options>
  rl_options native(const Options& options) const {
    rl_options with{};
    with.timeout_ms = limit_of(options.timeout);
    return with;
  }

  // Refuses tensors of another kind of device, whose addresses mean nothing to this one's.
  void on_device(const Call& call) const {
    for (const auto& tensor : call.keep) {
      if (tensor.device().type() != device_.type()) {
        refuse("the communicator ", name_, " is for ", device_, ", and a tensor is on ", tensor.device(), elsewhere);
      }
    }
  }

  // Returns the longest time without progress of a call.
  milliseconds patience(milliseconds timeout) const {
    return timeout.count() == 0 ? options_.timeout : timeout;
  }

  // Makes a call: on this thread, in the background, or in a stream of a GPU.
  template <typename Options, typename F>
  c10::intrusive_ptr<TorchWork> execute(Call call, bool async_op, const Options& options, F&& function) {
    rl_options with = native(options);
    const std::string hints = text_of(options.hints);
    with.hints = hints.empty() ? nullptr : hints.c_str();
    on_device(call);
    if (device_.is_cuda()) {
      return enqueue(std::move(call), async_op, with, patience(options.timeout), function);
    }
    rl_work* work = nullptr;
    if (function(&with, async_op ? &work : nullptr) != 0) {
      fail(roundelay::last_error());
    }
    if (work != nullptr) {
      return background({work}, std::move(call), true, options.timeout);
    }
    for (const auto& due : call.finish) {
      due();
    }
    return c10::make_intrusive<TorchWorkCompleted>();
  }

  // Puts a call into the current stream of the GPU; one that is asynchronous beside it, as torchcomms' other backends do,
  // so that it goes on together with what the caller puts there next.
  template <typename F>
  c10::intrusive_ptr<TorchWork> enqueue(
      Call call, bool async_op, rl_options with, milliseconds timeout, F&& function) {
    // The library makes its GPU the current one of the thread; the caller's is another, perhaps.
    c10::DeviceGuard guard(device_);
    c10::OptionalStreamGuard beside;
    if (async_op) {
      if (!beside_) {
        beside_ = std::make_unique<roundelay::Beside>(device_);
      }
      beside_->follow();
      beside.reset_stream(beside_->stream);
      with.overlaps = 1;
    }
    with.memory = RL_CUDA;
    with.stream = roundelay::given_stream(roundelay::current_stream(device_).native_handle());
    if (function(&with, nullptr) != 0) {
      fail(roundelay::last_error());
    }
    for (const auto& due : call.finish) {
      due();
    }
    return c10::make_intrusive<OnStream>(device_, std::move(call.keep), timeout);
  }

  c10::intrusive_ptr<TorchWork> background(
      std::vector<rl_work*> natives, Call call, bool async_op, milliseconds timeout) {
    auto work = c10::make_intrusive<Work>(std::move(natives), std::move(call), patience(timeout), listener_);
    work->start();
    if (!async_op) {
      work->wait();
    }
    return work;
  }

  static void check(int32_t status) {
    if (status != 0) {
      throw std::runtime_error(Work::words(roundelay::last_error()));
    }
  }

  [[noreturn]] void fail(const roundelay::Error& error) {
    tell();
    throw std::runtime_error(Work::words(error));
  }

  rl_comm* host_ = nullptr;
  rl_comm* comm_ = nullptr;
  int rank_ = -1;
  int size_ = -1;
  bool joined_ = false;
  bool finalized_ = false;
  std::atomic<bool> told_{false};
  // The numbers of the generations it has been in.
  std::set<int64_t> used_;
  std::shared_ptr<Listener> listener_ = std::make_shared<Listener>();
  at::Device device_{at::kCPU};
  // Made by the first asynchronous call on a GPU.
  std::unique_ptr<roundelay::Beside> beside_;
  std::string name_;
  CommOptions options_;
  c10::intrusive_ptr<c10d::Store> store_;
};

} // namespace
} // namespace torch::comms
